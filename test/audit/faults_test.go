package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// place is where a fault is planted: a healthy node with block 10.0.N.0/29, in a range that no
// other node uses.
type place struct {
	*bed
	node string
	n    int
	cn   *ciliumv2.CiliumNode
}

func (p *place) ip(last int) string { return fmt.Sprintf("10.0.%d.%d", p.n, last) }

func (p *place) publish(ip string) {
	p.Helper()
	p.cn.Spec.IPAM.Pool[ip] = ipamtypes.AllocationIP{}
	p.Update(p.cn)
}

func (p *place) unpublish(ip string) {
	p.Helper()
	delete(p.cn.Spec.IPAM.Pool, ip)
	p.Update(p.cn)
}

// listText lists a text that Cilium's types cannot hold.
func (p *place) listText(list, text string) {
	p.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition))
	o.SetName(p.cn.Name)
	patch := fmt.Appendf(nil, `[{"op":"add","path":"/spec/ipam/%s/-","value":%q}]`, list, text)
	p.Must(p.Client.Patch(p.Context(), o, client.RawPatch(types.JSONPatchType, patch)))
}

func (p *place) list(cidr string) {
	p.Helper()
	p.cn.Spec.IPAM.PodCIDRs = append(p.cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(netip.MustParsePrefix(cidr)))
	p.Update(p.cn)
}

func (p *place) use(ip, owner string) {
	p.Helper()
	p.cn.Status.IPAM.Used[ip] = ipamtypes.AllocationIP{Owner: owner}
	p.UpdateStatus(p.cn)
}

func (p *place) entry(ip string, status expand.ReleaseStatus) {
	p.Helper()
	p.cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{ip: ipamtypes.IPReleaseStatus(status)}
	p.UpdateStatus(p.cn)
}

// own returns the block of the place.
func (p *place) own() *v1alpha1.PodIPBlock {
	p.Helper()
	o := &v1alpha1.PodIPBlock{}
	key := client.ObjectKey{Name: crd.BlockName(netip.MustParsePrefix(p.ip(0) + "/29"))}
	p.Must(p.Client.Get(p.Context(), key, o))
	return o
}

func (p *place) phase(o *v1alpha1.PodIPBlock, phase ipalloc.Phase, reason expand.Reason, since time.Duration) {
	p.Helper()
	crd.SetBlockPhase(o, phase, reason, "planted", time.Now().Add(-since))
	p.UpdateStatus(o)
}

// fault plants one fault. In want, NODE is the place's node and N its number.
type fault struct {
	plant func(p *place)
	want  []string
	timed bool // see stuck
}

// found is a fault that check reports at once.
func found(plant func(p *place), want ...string) fault { return fault{plant, want, false} }

// stuck is one that it reports only after --stuck-after.
func stuck(plant func(p *place), want ...string) fault { return fault{plant, want, true} }

func addressFaults() map[audit.Reason]fault {
	return map[audit.Reason]fault{
		audit.AddressOnTwoNodes: found(func(p *place) { p.publish("10.0.0.4") }, "AddressOnTwoNodes CiliumNode/NODE CiliumNode/healthy 10.0.0.4"),
		audit.AddressUsedTwice: found(func(p *place) { p.use("10.0.0.1", "default/x") },
			"AddressUsedTwice CiliumNode/NODE CiliumNode/healthy 10.0.0.1", "AddressOutsidePool CiliumNode/NODE 10.0.0.1"),
		audit.AddressTwiceInPool: found(func(p *place) { p.publish("fd00::a"); p.publish("FD00::A") },
			"AddressTwiceInPool CiliumNode/NODE fd00::a", "ForeignPoolEntry CiliumNode/NODE fd00::a"),
		audit.PoolEntryMalformed: found(func(p *place) { p.publish("FD00::B") },
			"PoolEntryMalformed CiliumNode/NODE fd00::b", "ForeignPoolEntry CiliumNode/NODE fd00::b"),
		audit.PoolEntryUnreadable: found(func(p *place) { p.publish("ten") }, "PoolEntryUnreadable CiliumNode/NODE"),
		audit.FieldUnreadable:     found(func(p *place) { p.listText("podCIDRs", "10.020.0.0/24") }, "FieldUnreadable CiliumNode/NODE"),
		audit.AddressOutsidePool:  found(func(p *place) { p.unpublish(p.ip(2)) }, "AddressOutsidePool CiliumNode/NODE 10.0.N.2"),
		audit.PoolEntryOfOtherNode: found(func(p *place) {
			p.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"pool": "main"}}})
			p.phase(p.block("other", p.ip(8)+"/29"), ipalloc.CoolingDown, expand.Returned, 0)
			p.Create(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "other"},
				Spec: ciliumv2.NodeSpec{IPAM: ipamtypes.IPAMSpec{Pool: ipamtypes.AllocationMap{"192.0.2.201": {}}}}})
			p.publish(p.ip(10))
		}, "PoolEntryOfOtherNode CiliumNode/NODE PodIPBlock/10.0.N.8-29 10.0.N.10", "ForeignPoolEntry CiliumNode/other 192.0.2.201"),
		audit.PoolEntryWithoutBlock: found(func(p *place) { p.publish(p.ip(77)) }, "PoolEntryWithoutBlock CiliumNode/NODE PodIPPool/main 10.0.N.77"),
		audit.ForeignPoolEntry:      found(func(p *place) { p.publish("192.0.2.200") }, "ForeignPoolEntry CiliumNode/NODE 192.0.2.200"),
		audit.PodCIDROnTwoNodes: found(func(p *place) { p.list("198.51.100.0/24") },
			"PodCIDROnTwoNodes CiliumNode/NODE CiliumNode/healthy 198.51.100.0/24", "ForeignPodCIDR CiliumNode/NODE 198.51.100.0/24", "ForeignPodCIDR CiliumNode/healthy 198.51.100.0/25"),
		audit.PodCIDROfOtherNode: found(func(p *place) { p.list("10.0.0.0/29") }, "PodCIDROfOtherNode CiliumNode/NODE PodIPBlock/10.0.0.0-29 10.0.0.0/29"),
		audit.ForeignPodCIDR:     found(func(p *place) { p.list("203.0.113.0/24") }, "ForeignPodCIDR CiliumNode/NODE 203.0.113.0/24"),
	}
}

func blockFaults() map[audit.Reason]fault {
	return map[audit.Reason]fault{
		audit.BlockNotListed: found(func(p *place) { p.cn.Spec.IPAM.PodCIDRs = nil; p.Update(p.cn) },
			"BlockNotListed PodIPBlock/10.0.N.0-29 CiliumNode/NODE 10.0.N.0/29"),
		audit.BlockWithoutNode: found(func(p *place) { p.block("no-node", p.ip(16)+"/29") }, "BlockWithoutNode PodIPBlock/10.0.N.16-29 Node/no-node 10.0.N.16/29"),
		audit.BlockWithoutPool: found(func(p *place) {
			p.Remove(p.own())
			p.Create(crd.NewBlock(netip.MustParsePrefix(p.ip(0)+"/29"), "no-pool", p.node, ""))
		}, "BlockWithoutPool PodIPBlock/10.0.N.0-29 PodIPPool/no-pool 10.0.N.0/29"),
		audit.BlockUnprotected: found(func(p *place) { o := p.own(); o.Finalizers = nil; p.Update(o) }, "BlockUnprotected PodIPBlock/10.0.N.0-29 10.0.N.0/29"),
		audit.CooldownOverdue: found(func(p *place) {
			p.phase(p.block(p.node, p.ip(16)+"/29"), ipalloc.CoolingDown, expand.Returned, 3*time.Hour)
		}, "CooldownOverdue PodIPBlock/10.0.N.16-29 Node/NODE 10.0.N.16/29"),
		audit.TimeInFuture: found(func(p *place) {
			p.phase(p.block(p.node, p.ip(16)+"/29"), ipalloc.CoolingDown, expand.Returned, -3*time.Hour)
		}, "TimeInFuture PodIPBlock/10.0.N.16-29"),
		audit.DrainStuck: stuck(func(p *place) {
			p.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + p.node}})
			p.cn.Status.IPAM.Used = nil
			p.UpdateStatus(p.cn)
			p.phase(p.own(), ipalloc.Draining, expand.Deleted, 3*time.Hour)
		}, "DrainStuck PodIPBlock/10.0.N.0-29 CiliumNode/NODE 10.0.N.0/29"),
		audit.MarkedInUse:    found(func(p *place) { p.entry(p.ip(2), expand.Marked) }, "MarkedInUse CiliumNode/NODE 10.0.N.2"),
		audit.StuckHandshake: stuck(func(p *place) { p.entry(p.ip(4), expand.Marked) }, "StuckHandshake CiliumNode/NODE 10.0.N.4"),
		audit.StaleRelease:   found(func(p *place) { p.entry("192.0.2.1", expand.DoNotRelease) }, "StaleRelease CiliumNode/NODE 192.0.2.1"),
	}
}

func nodeFaults() map[audit.Reason]fault {
	return map[audit.Reason]fault{
		audit.CiliumNodeMissing: found(func(p *place) { p.Remove(p.cn) }, "CiliumNodeMissing Node/NODE"),
		audit.CiliumNodeWithoutNode: found(func(p *place) {
			p.Remove(p.own())
			p.Remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.node}})
			p.cn.Spec.IPAM.PodCIDRs, p.cn.Spec.IPAM.Pool = nil, ipamtypes.AllocationMap{p.ip(2): {}, p.ip(1): {}}
			p.Update(p.cn)
		}, "CiliumNodeWithoutNode CiliumNode/NODE", "PoolEntryWithoutBlock CiliumNode/NODE PodIPPool/main 10.0.N.1 10.0.N.2"),
		audit.NodeWithoutAddresses: found(func(p *place) { p.newcomer("empty", "main") }, "NodeWithoutAddresses Node/empty PodIPPool/main"),
		audit.NodeYetToMove: found(func(p *place) {
			p.Remove(p.own())
			p.cn.Spec.IPAM.Pool = nil
			p.Update(p.cn)
			p.cn.Status.IPAM.Used = nil
			p.UpdateStatus(p.cn)
		}, "NodeYetToMove Node/NODE"),
		audit.NodeServedByNoPool: found(func(p *place) { p.newcomer("unserved", "none") }, "NodeServedByNoPool Node/unserved"),
		audit.NodeAwaitsLabels: found(func(p *place) {
			p.pool("late", func(o *v1alpha1.PodIPPool) {
				o.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-restriction.kubernetes.io/late": "true"}}
			}, "10.200.0.0/24")
			p.newcomer("awaiting", "late")
			node := &corev1.Node{}
			p.Must(p.Client.Get(p.Context(), client.ObjectKey{Name: "awaiting"}, node))
			node.Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}}
			p.Update(node)
			p.Create(harness.BoundPod("awaiting", "ccm", nil))
		}, "NodeAwaitsLabels Node/awaiting"),
		audit.NodeWithoutAgent: stuck(func(p *place) {
			p.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-" + p.node}})
			p.cn.Status.IPAM.Used = nil
			p.UpdateStatus(p.cn)
			p.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + p.node}})
			p.RunningPod(p.node, "elsewhere", "172.16.4.1")
		}, "NodeWithoutAgent Node/NODE"),
		audit.NodePodCIDRInPool: found((*place).podCIDR, "NodePodCIDRInPool Node/NODE PodIPPool/main 10.0.100.0/24"),
		audit.NodeShortOfAddresses: found(func(p *place) {
			node := &corev1.Node{}
			p.Must(p.Client.Get(p.Context(), client.ObjectKey{Name: p.node}, node))
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
				Type: v1alpha1.NodeAddressShortage, Status: corev1.ConditionTrue, Reason: "PoolsExhausted", Message: "planted"})
			p.UpdateStatus(node)
		}, "NodeShortOfAddresses Node/NODE"),
		audit.ClusterAddressInUse: found(func(p *place) {
			node := &corev1.Node{}
			p.Must(p.Client.Get(p.Context(), client.ObjectKey{Name: p.node}, node))
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: p.ip(2)}}
			p.UpdateStatus(node)
		}, "ClusterAddressInUse CiliumNode/NODE 10.0.N.2", "PoolCoversClusterAddresses PodIPPool/main 10.0.N.2"),
		audit.PoolCoversCluster: found(func(p *place) { p.pool("services", nil, "10.96.0.0/24") }, "PoolCoversClusterAddresses PodIPPool/services 10.96.0.0/16", "PoolSelectsNoNode PodIPPool/services"),
		audit.PoolsOverlap: found(func(p *place) { p.pool("second", nil, "10.0.128.0/17", "10.9.0.0/24") },
			"PoolsOverlap PodIPPool/second PodIPPool/main 10.0.128.0/17", "PoolSelectsNoNode PodIPPool/second"),
		audit.PoolInvalid: found(func(p *place) {
			p.pool("invalid", func(o *v1alpha1.PodIPPool) {
				o.Status.Conditions[0].Status, o.Status.Conditions[0].Reason = metav1.ConditionFalse, poolcontroller.ReasonInvalid
				o.Status.Conditions[0].Message = "planted"
			}, "10.9.1.0/24")
		}, "PoolInvalid PodIPPool/invalid", "PoolSelectsNoNode PodIPPool/invalid"),
		audit.PoolNotReady: found(func(p *place) {
			p.pool("paused", func(o *v1alpha1.PodIPPool) {
				o.Status.Conditions[0].Status, o.Status.Conditions[0].Reason = metav1.ConditionFalse, poolcontroller.ReasonPaused
			}, "10.9.9.0/24")
		}, "PoolNotReady PodIPPool/paused", "PoolSelectsNoNode PodIPPool/paused"),
		audit.PoolExhausted: found(func(p *place) {
			p.pool("full", withCondition(v1alpha1.PoolExhausted, metav1.ConditionTrue, poolcontroller.ReasonExhausted), "10.9.2.0/24")
		}, "PoolExhausted PodIPPool/full", "PoolSelectsNoNode PodIPPool/full"),
		audit.PoolFamilyNotRun: found(func(p *place) {
			p.pool("families", withCondition(v1alpha1.PoolFamiliesServed, metav1.ConditionFalse, poolcontroller.ReasonAgentsWithout), "10.9.7.0/24")
		}, "PoolFamilyNotRun PodIPPool/families", "PoolSelectsNoNode PodIPPool/families"),
		// The other pools here pick no Node, either.
		audit.PoolSelectsNoNode: found(func(p *place) { p.pool("misspelt", nil, "10.9.6.0/24") }, "PoolSelectsNoNode PodIPPool/misspelt"),
		audit.PoolChosenByKubelet: found(func(p *place) {
			o := p.pool("chosen", nil, "10.9.4.0/24")
			o.Annotations = nil
			p.Update(o)
		}, "PoolChosenByKubelet PodIPPool/chosen", "PoolSelectsNoNode PodIPPool/chosen"),
		audit.PoolRangePublic: found(func(p *place) { p.pool("public", nil, "100.162.224.0/19") }, "PoolRangePublic PodIPPool/public 100.162.224.0/19", "PoolSelectsNoNode PodIPPool/public"),
		audit.PinNotReady: found(func(p *place) {
			pin := &v1alpha1.PodIPPin{ObjectMeta: metav1.ObjectMeta{Name: "10.8.0.0-28"}, Spec: v1alpha1.PodIPPinSpec{CIDR: "10.8.0.0/28", NodeName: "gateway"}}
			p.Create(pin)
			pin.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PinReady, Status: metav1.ConditionFalse, Reason: v1alpha1.PinNotInPool, LastTransitionTime: metav1.Now()}}
			p.Must(p.Client.Status().Update(p.Ctx, pin))
		}, "PinNotReady PodIPPin/10.8.0.0-28"),
		audit.PoolStatusStale: found(func(p *place) {
			o := p.pool("unseen", nil, "10.9.3.0/24")
			o.Spec.Priority = 7
			p.Update(o)
		}, "PoolStatusStale PodIPPool/unseen", "PoolSelectsNoNode PodIPPool/unseen"),
	}
}

// withCondition adds a condition to the status of a pool.
func withCondition(kind string, status metav1.ConditionStatus, reason string) func(*v1alpha1.PodIPPool) {
	return func(o *v1alpha1.PodIPPool) {
		o.Status.Conditions = append(o.Status.Conditions,
			metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "planted", LastTransitionTime: metav1.Now()})
	}
}

// podCIDR gives the Node a podCIDR in the pool main.
func (p *place) podCIDR() {
	p.spoilNode(func(n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.0.100.0/24", []string{"10.0.100.0/24"} })
}

// newcomer creates a Node with an agent that waits for addresses.
func (p *place) newcomer(name, pool string) {
	p.Helper()
	p.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}})
	p.Create(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// elsewhere are reasons that are not planted together with the others, with the explanation.
var elsewhere = map[audit.Reason]string{
	audit.NoOperatorLeads:         "of the whole cluster: test/plugin/testdata/check.txtar",
	audit.NoAgentsFound:           "of the whole cluster: TestNoAgentsFound",
	audit.CiliumModeDiffers:       "of the whole cluster: TestCiliumConfigFaults",
	audit.KVStoreWithoutRoutes:    "of the whole cluster: TestCiliumConfigFaults",
	audit.PoolMasqueraded:         "of the whole cluster: TestCiliumConfigFaults",
	audit.BlockNotAnnounced:       "FRRConfigurations are not served there: see pkg/audit",
	audit.FRRConfigurationLeft:    "FRRConfigurations are not served there: see pkg/audit",
	audit.BlockWithoutNeighbor:    "FRRConfigurations are not served there: see pkg/audit",
	audit.AnnouncedByOtherNode:    "FRRConfigurations are not served there: see pkg/audit",
	audit.FRRConfigurationRefused: "FRRNodeStates are not served there: see pkg/audit",
	audit.BGPSessionDown:          "BGPSessionStates are not served there: see pkg/audit",
	audit.ClusterAddressRouted:    "another IPAM assigns there: see pkg/audit",
	audit.BlockMalformed:          "the API server refuses such blocks: see pkg/audit",
}

// plantAll plants faults, each on its own node, and returns their number, their reasons, and the
// expected findings; untimed are the findings expected without --stuck-after.
func plantAll(b *bed, node func(name, cidr string) *ciliumv2.CiliumNode, faults ...map[audit.Reason]fault) (n int, planted map[audit.Reason]bool, all, untimed []string) {
	b.Helper()
	planted = map[audit.Reason]bool{}
	for _, some := range faults {
		for reason, f := range some {
			n++
			planted[reason] = true
			p := &place{bed: b, node: fmt.Sprintf("node-%02d", n), n: n}
			p.cn = node(p.node, p.ip(0)+"/29")
			f.plant(p)
			for _, want := range f.want {
				want = strings.NewReplacer("NODE", p.node, "10.0.N.", fmt.Sprintf("10.0.%d.", n)).Replace(want)
				all = append(all, want)
				if !f.timed {
					untimed = append(untimed, want)
				}
			}
		}
	}
	return n, planted, all, untimed
}

// All faults are planted at once, each at its own place: each is found, by reason and object, and
// no others are.
func TestPlantedFaults(t *testing.T) {
	b := newBed(t)
	b.pool("main", nil, "10.0.0.0/16")
	healthy := b.node("healthy", "10.0.0.0/29")
	healthy.Spec.IPAM.PodCIDRs = append(healthy.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(netip.MustParsePrefix("198.51.100.0/25")))
	b.Update(healthy)

	n, planted, all, untimed := plantAll(b, b.node, faultsAlike("CiliumNode"), addressFaults(), blockFaults(), nodeFaults())
	for _, e := range audit.Catalogue() {
		if slices.Contains(e.Modes(), ciliumnode.CRD) && !planted[e.Reason] && elsewhere[e.Reason] == "" {
			t.Errorf("%s is not planted", e.Reason)
		}
	}

	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"at once": {[]string{"--stuck-after=0s"}, all},
		"patient": {[]string{"--stuck-after=1h"}, untimed},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.check(append(test.args, "-o", "json")...)
			report := b.report(got)
			slices.Sort(test.want)
			if !b.ServesServiceCIDRs() {
				test.want = slices.DeleteFunc(test.want, func(w string) bool { return strings.HasSuffix(w, "PodIPPool/services 10.96.0.0/16") })
			}
			if diff := cmp.Diff(test.want, lines(report)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if got.code != 1 || report.Looks != 2 || report.Looked.Nodes < n {
				t.Errorf("exit code %d after %d looks at %d Nodes, want 1 after 2 at %d or more", got.code, report.Looks, report.Looked.Nodes, n)
			}
			for _, f := range report.Findings {
				if f.Message == "" || f.Fix == "" || strings.Contains(f.Fix, "NAME") || strings.Contains(f.Fix, "ADDRESS") || strings.Contains(f.Fix, "OTHER") {
					t.Errorf("%s: %q, fix %q", f.Reason, f.Message, f.Fix)
				}
			}
		})
	}
}

// The settings of Cilium's agents do not fit the operator's mode and pools.
func TestCiliumConfigFaults(t *testing.T) {
	b := newBed(t)
	b.pool("main", nil, "10.0.0.0/16")
	b.node("a", "10.0.0.0/29")
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"}, Data: map[string]string{
		"ipam": "cluster-pool", "kvstore": "etcd", "routing-mode": "native", "auto-direct-node-routes": "true",
		"enable-ipv4-masquerade": "true", "ipv4-native-routing-cidr": "10.96.0.0/12",
	}}
	b.Create(config)
	defer b.Delete(config)
	want := []string{"CiliumModeDiffers ConfigMap/kube-system/cilium-config", "KVStoreWithoutRoutes ConfigMap/kube-system/cilium-config", "PoolMasqueraded PodIPPool/main 10.0.0.0/16"}
	got := b.check("-o", "json", "--mode=crd")
	if diff := cmp.Diff(want, lines(b.report(got))); diff != "" || got.code != 1 {
		t.Errorf("exit code %d, findings (-want +got):\n%s\n%s", got.code, diff, got.stderr)
	}
}

func TestNoAgentsFound(t *testing.T) {
	b := newBed(t)
	b.pool("main", nil, "10.0.0.0/16")
	b.node("a", "10.0.0.0/29")
	got := b.check("-o", "json", "--agent-selector=k8s-app=other")
	if diff := cmp.Diff([]string{"NoAgentsFound DaemonSet/cilium"}, lines(b.report(got))); diff != "" || got.code != 1 {
		t.Errorf("exit code %d, findings (-want +got):\n%s", got.code, diff)
	}
}
