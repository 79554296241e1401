package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const podCIDRAnnotation = "network.cilium.io/ipv4-pod-cidr"

// assigned creates a node of pool main with an agent that is assigned a whole block, and a pod on
// its third address.
func (b *bed) assigned(mode ciliumnode.Mode, name, cidr string) *ciliumv2.CiliumNode {
	b.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "main"}}}
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	block, router := prefix(cidr), prefix(cidr).Addr().Next()
	if mode == ciliumnode.Kubernetes {
		node.Annotations = map[string]string{podCIDRAnnotation: cidr}
		cn.Spec.IPAM.PodCIDRs = []iputil.Prefix{block}
	} else {
		own := router.String()
		needed := 6
		if mode == ciliumnode.DelegatedPlugin {
			own = "169.254.23.0"
			needed = 1
		}
		cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: own}}
		cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: needed}}}
		cn.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "default", CIDRs: []iputil.Prefix{block}}}
	}
	b.Create(node)
	b.AgentPod(name)
	b.block(name, cidr)
	b.Create(cn)
	b.RunningPod(name, "on-"+name, router.Next().String())
	return cn
}

func prefix(cidr string) iputil.Prefix { return iputil.PrefixFrom(netip.MustParsePrefix(cidr)) }

// add assigns an additional CIDR to the place's agent.
func (p *place) add(pool string, cidr string) {
	p.Helper()
	pools := &p.cn.Spec.IPAM.Pools
	i := slices.IndexFunc(pools.Allocated, func(e ipamtypes.IPAMPoolAllocation) bool { return e.Pool == pool })
	if i < 0 {
		i, pools.Allocated = len(pools.Allocated), append(pools.Allocated, ipamtypes.IPAMPoolAllocation{Pool: pool})
	}
	pools.Allocated[i].CIDRs = append(pools.Allocated[i].CIDRs, prefix(cidr))
	p.Update(p.cn)
}

// spoilNode changes the place's Node.
func (p *place) spoilNode(change func(*corev1.Node)) {
	p.Helper()
	node := &corev1.Node{}
	p.Must(p.Client.Get(p.Context(), client.ObjectKey{Name: p.node}, node))
	change(node)
	p.Update(node)
}

// runs makes the place's agent run in kubernetes mode with a podCIDR.
func (p *place) runs(cidr string) {
	p.Helper()
	p.cn.Spec.IPAM.PodCIDRs = []iputil.Prefix{prefix(cidr)}
	p.Update(p.cn)
}

func (p *place) podGone() {
	p.Helper()
	p.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + p.node}})
}

// outside makes a pod run on an address in a cooling block, which need not be listed.
func (p *place) outside() {
	p.phase(p.block(p.node, p.ip(16)+"/29"), ipalloc.CoolingDown, expand.Returned, 0)
	p.RunningPod(p.node, "outside", p.ip(18))
}

// keeps pins an address to the place's pod, which does not require it.
func (p *place) keeps() {
	pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "kept", Annotations: map[string]string{v1alpha1.TrustedLabelsAnnotation: "true"}}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "main"}}
	pool.Spec.CiliumPoolName = "kept"
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 32, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.9.6.0/30"}}}
	p.Create(pool)
	pool.Status.ObservedGeneration = pool.Generation
	pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now()}}
	p.UpdateStatus(pool)
	p.Create(&v1alpha1.PodIPPin{
		ObjectMeta: metav1.ObjectMeta{Name: "10.9.6.0-32"}, Spec: v1alpha1.PodIPPinSpec{CIDR: "10.9.6.0/32", PodNamespace: "default", PodName: "on-" + p.node},
	})
}

// faultsAlike returns the faults that are planted in the same way in all modes.
func faultsAlike(kind string) map[audit.Reason]fault {
	return map[audit.Reason]fault{
		"PodsShareAddress": found(func(p *place) { p.RunningPod(p.node, "zz-shares", p.ip(2)) },
			"PodsShareAddress Pod/default/zz-shares Pod/default/on-NODE 10.0.N.2"),
		"PodAddressOfOtherNode": found(func(p *place) { p.RunningPod(p.node, "astray", "10.0.0.5") },
			"PodAddressOfOtherNode Pod/default/astray "+kind+"/healthy 10.0.0.5"),
		"PodAddressUnowned":   found(func(p *place) { p.RunningPod(p.node, "unowned", "192.0.2.99") }, "PodAddressUnowned Pod/default/unowned 192.0.2.99"),
		"PodCIDRWithoutBlock": found(func(p *place) { p.Remove(p.own()) }, "PodCIDRWithoutBlock "+kind+"/NODE 10.0.N.0/29"),
		"BlockNotPublished":   stuck(func(p *place) { p.block(p.node, p.ip(16)+"/29") }, "BlockNotPublished PodIPBlock/10.0.N.16-29 "+kind+"/NODE 10.0.N.16/29"),
		"CoolingBlockPublished": found(func(p *place) { p.phase(p.own(), ipalloc.CoolingDown, expand.Returned, 0) },
			"CoolingBlockPublished PodIPBlock/10.0.N.0-29 "+kind+"/NODE 10.0.N.0/29"),
		"BlocksOverlap": found(func(p *place) { p.block(p.node, p.ip(0)+"/28") }, "BlocksOverlap PodIPBlock/10.0.N.0-28 PodIPBlock/10.0.N.0-29 10.0.N.0/28"),
	}
}

func delegatedFaults() map[audit.Reason]fault {
	faults := manyPoolsFaults()
	faults[audit.NodeAgentSilent] = stuck(func(p *place) {
		p.cn.Spec.IPAM.Pools.Requested = nil
		p.Update(p.cn)
	}, "NodeAgentSilent CiliumNode/NODE")
	faults[audit.FamilySwitchedOff] = found(func(p *place) {
		config := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"},
			Data:       map[string]string{"ipam": ciliumnode.DelegatedPlugin.String(), "enable-ipv6": "false"},
		}
		p.Create(config)
		p.Cleanup(func() { p.gone(config) })
		p.cn.Spec.IPAM.Pools.Requested[0].Needed.IPv6Addrs = 1
		p.Update(p.cn)
	}, "FamilySwitchedOff CiliumNode/NODE", "NodeServedByNoPool Node/NODE")
	return faults
}

// manyPoolsFaults returns the faults of modes with several Cilium pools.
func manyPoolsFaults() map[audit.Reason]fault {
	return map[audit.Reason]fault{
		"AddressOutsidePool": found((*place).outside, "AddressOutsidePool CiliumNode/NODE 10.0.N.18"),
		"FieldUnreadable":    found(func(p *place) { p.listText("pools/allocated/0/cidrs", "10.0.0.0/029") }, "FieldUnreadable CiliumNode/NODE"),
		"PodCIDROfOtherNode": found(func(p *place) { p.add("default", "10.0.0.0/29") }, "PodCIDROfOtherNode CiliumNode/NODE PodIPBlock/10.0.0.0-29 10.0.0.0/29"),
		"PodCIDROnTwoNodes": found(func(p *place) { p.add("blue", "198.51.100.0/24") },
			"PodCIDROnTwoNodes CiliumNode/NODE CiliumNode/healthy 198.51.100.0/24", "ForeignPodCIDR CiliumNode/NODE 198.51.100.0/24", "ForeignPodCIDR CiliumNode/healthy 198.51.100.0/25"),
		"ListedTwice": found(func(p *place) { p.add("blue", p.ip(0)+"/29") }, "ListedTwice CiliumNode/NODE 10.0.N.0/29"),
		"PodServedByNoPool": found(func(p *place) {
			pod := harness.BoundPod(p.node, "wrong-"+p.node, nil)
			pod.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "bleu"}
			p.Create(pod)
		}, "PodServedByNoPool Pod/default/wrong-NODE Node/NODE"),
		audit.CiliumPodIPPoolUnfit: found(func(p *place) {
			p.pool("edited", withCondition(v1alpha1.PoolCiliumPool, metav1.ConditionFalse, poolcontroller.ReasonCIDRsUnused), "10.9.5.0/24")
		}, "CiliumPodIPPoolUnfit PodIPPool/edited", "PoolSelectsNoNode PodIPPool/edited"),
		audit.KeptAddressOptional: found((*place).keeps, "KeptAddressOptional PodIPPool/kept Pod/default/on-NODE"),
		"LeftFromCRDMode": found(func(p *place) {
			p.cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{p.ip(2): {}}
			p.list(p.ip(0) + "/29")
		}, "LeftFromCRDMode CiliumNode/NODE"),
		"DrainStuck": stuck(func(p *place) {
			p.add("default", p.ip(16)+"/29")
			p.phase(p.block(p.node, p.ip(16)+"/29"), ipalloc.Draining, expand.Deleted, 3*time.Hour)
		}, "DrainStuck PodIPBlock/10.0.N.16-29 CiliumNode/NODE 10.0.N.16/29"),
		"StaleRelease":         stuck(func(p *place) { p.entry("192.0.2.1", expand.Marked) }, "StaleRelease CiliumNode/NODE 192.0.2.1"),
		"NodePodCIDRInPool":    found((*place).podCIDR, "NodePodCIDRInPool Node/NODE PodIPPool/main 10.0.100.0/24"),
		"CiliumNodeMissing":    found(func(p *place) { p.Remove(p.cn) }, "CiliumNodeMissing Node/NODE"),
		"NodeWithoutAddresses": found(func(p *place) { p.newcomer("empty", "main") }, "NodeWithoutAddresses Node/empty PodIPPool/main"),
	}
}

func kubernetesFaults() map[audit.Reason]fault {
	return map[audit.Reason]fault{
		"AddressOutsidePool": found((*place).outside, "AddressOutsidePool Node/NODE 10.0.N.18"),
		"PodCIDROfOtherNode": found(func(p *place) {
			p.Remove(p.own())
			p.podGone()
			p.spoilNode(func(n *corev1.Node) { n.Annotations[podCIDRAnnotation] = "10.0.0.0/29" })
			p.runs("10.0.0.0/29")
		}, "PodCIDROfOtherNode Node/NODE PodIPBlock/10.0.0.0-29 10.0.0.0/29"),
		"AgentOnOtherPodCIDR": found(func(p *place) { p.podGone(); p.runs("198.51.100.0/24") }, "AgentOnOtherPodCIDR Node/NODE 198.51.100.0/24"),
		"NodePodCIDRFirst": found(func(p *place) {
			p.podGone()
			p.spoilNode(func(n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "203.0.113.0/24", []string{"203.0.113.0/24"} })
			p.runs("203.0.113.0/24")
		}, "NodePodCIDRFirst Node/NODE PodIPBlock/10.0.N.0-29 10.0.N.0/29", "ForeignPodCIDR Node/NODE 203.0.113.0/24"),
		"FamilyNotRun": found(func(p *place) {
			p.block(p.node, "fd00::/125")
			p.spoilNode(func(n *corev1.Node) { n.Annotations["network.cilium.io/ipv6-pod-cidr"] = "fd00::/125" })
			p.cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: p.ip(1)}}
			p.Update(p.cn)
		}, "FamilyNotRun Node/NODE PodIPBlock/fd00---125 fd00::/125"),
		"NodeWithoutAddresses": found(func(p *place) {
			p.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "empty", Labels: map[string]string{"pool": "main"}}})
		}, "NodeWithoutAddresses Node/empty PodIPPool/main"),
	}
}

// All faults of a mode with whole blocks are planted at once, as in TestPlantedFaults. The
// operator's Lease carries the mode.
func TestPlantedFaultsOfModes(t *testing.T) {
	for mode, more := range map[ciliumnode.Mode]map[audit.Reason]fault{
		ciliumnode.MultiPool: manyPoolsFaults(), ciliumnode.DelegatedPlugin: delegatedFaults(), ciliumnode.Kubernetes: kubernetesFaults(),
	} {
		t.Run(mode.String(), func(t *testing.T) {
			b := newBed(t)
			b.leads(clusterread.LeaseNamespace, clusterread.LeaseName, mode)
			b.pool("main", nil, "10.0.0.0/16")
			healthy := b.assigned(mode, "healthy", "10.0.0.0/29")
			if got := b.check("-o", "json", "--stuck-after=0s"); got.code != 0 {
				t.Errorf("a healthy cluster: exit code %d\n%s%s", got.code, got.stdout, got.stderr)
			}
			if mode.ManyPools() {
				(&place{bed: b, node: "healthy", cn: healthy}).add("green", "198.51.100.0/25")
			}
			kind, _ := mode.Resource()
			assigned := func(name, cidr string) *ciliumv2.CiliumNode { return b.assigned(mode, name, cidr) }
			_, planted, all, untimed := plantAll(b, assigned, faultsAlike(kind.Kind), more)
			for _, e := range audit.Catalogue() {
				if len(e.Modes()) < len(ciliumnode.Modes()) && slices.Contains(e.Modes(), mode) && !planted[e.Reason] && elsewhereIn[e.Reason] == "" {
					t.Errorf("%s is not planted in %s mode", e.Reason, mode)
				}
			}
			for wait, want := range map[string][]string{"--stuck-after=0s": all, "--stuck-after=1h": untimed} {
				got := b.check(wait, "-o", "json")
				report := b.report(got)
				slices.Sort(want)
				if diff := cmp.Diff(want, lines(report)); diff != "" || got.code != 1 || report.Mode != mode.String() {
					t.Errorf("%s: exit code %d, mode %s, findings (-want +got):\n%s", wait, got.code, report.Mode, diff)
				}
			}
		})
	}
}

// elsewhereIn are the reasons that exist in some modes but are not planted in each of them,
// with the explanation.
var elsewhereIn = map[audit.Reason]string{
	audit.AddressUsedTwice:      "unit test: two nodes must list one CIDR for it",
	audit.CiliumNodeWithoutNode: "the same in crd mode",
	audit.KVStoreWithoutRoutes:  "the same in crd mode",
}

// leads creates the Lease of an operator that leads in a mode, in place of an earlier one.
func (b *bed) leads(namespace, name string, mode ciliumnode.Mode) {
	b.Helper()
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.ModeLabel: mode.String()}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("op"), AcquireTime: &now, RenewTime: &now, LeaseDurationSeconds: new(int32(3600))},
	}
	b.gone(lease)
	b.Create(lease)
	b.Cleanup(func() { b.gone(lease) })
}

// leaderless deletes the Lease of newBed.
func (b *bed) leaderless() {
	b.gone(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: clusterread.LeaseNamespace, Name: clusterread.LeaseName}})
}

// The real operator writes its mode on its Lease, and check reads it there.
func TestOperatorPublishesItsMode(t *testing.T) {
	b := newBed(t)
	b.pool("main", nil, "10.0.0.0/16")
	b.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"pool": "main"}}})
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-pool-operator"}}
	b.leaderless()
	b.Cleanup(func() { b.gone(lease) }) // after the operator has ended
	b.startOperator("--mode=kubernetes", "--leader-elect=true")
	harness.Eventually(t, "check reads the mode", func() error {
		block := &v1alpha1.PodIPBlock{}
		if err := b.Client.Get(b.Context(), client.ObjectKey{Name: crd.BlockName(netip.MustParsePrefix("10.0.0.0/29"))}, block); err != nil {
			return err
		}
		o := b.check("-o", "json")
		if r := b.report(o); r.Mode != "kubernetes" || o.code != 1 { // there is no agent
			return fmt.Errorf("exit code %d:\n%s%s", o.code, o.stdout, o.stderr)
		}
		return nil
	})
}
