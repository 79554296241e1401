package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// elsewherePool selects nodes of a zone that n is not in.
func elsewherePool() *v1alpha1.PodIPPool {
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "x"}}
	return pool
}

func (b *bed) withoutPool() map[string]float64 { return fakeapi.Series(b.T, b.r.Metrics.unselected) }

// A node that no pool selects reports so until one does.
func TestUnselectedNodeIsReported(t *testing.T) {
	b := newBed(t, fixtures.Node(), elsewherePool())
	b.r.Reporter.NodeCondition = true
	b.settle()
	b.hasShortage(reasonNoPool)
	if got, want := b.withoutPool(), (map[string]float64{"cilium_pool_node_without_pool n": 1}); !cmp.Equal(got, want) {
		t.Errorf("series %v, want %v", got, want)
	}
	if got := b.EventsOf(event.ReasonNoPoolSelectsNode); len(got) != 1 || !strings.Contains(got[0], "Warning ") || !strings.Contains(got[0], v1alpha1.OptOutLabel) {
		t.Errorf("events %q, want one", got)
	}
	b.callsNothing("settled")
	if len(b.r.Cluster.Awaiting.Wake(ipalloc.IPv4, []string{"p"})) > 0 {
		t.Error("free blocks would wake the node, which no pool may give one")
	}

	b.r.Cluster.Pools.Set(fixtures.PodIPPool("all", 2, "10.0.1.0/28"))
	b.settle()
	b.hasShortage(reasonEnough)
	if got := b.withoutPool(); len(got) > 0 {
		t.Errorf("series %v though a pool selects the node", got)
	}
}

// A node with an agent configured for IPv6 says so while no pool has IPv6: no agent starts there.
func TestFamilyWithoutPoolIsReported(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.r.Reporter.NodeCondition, b.r.Cluster.ShortageTaint, b.r.Cluster.Cilium = true, "short", &ciliumconfig.Latest{}
	b.r.Cluster.Cilium.Set(&ciliumconfig.Config{Data: map[string]string{"enable-ipv4": "true", "enable-ipv6": "true"}})
	b.startAgent()
	b.settle()
	b.hasShortage(reasonNotServed)
	b.reportsShortage("no PodIPPool gives ipv6 to node n, and its agent runs ipv6: it does not start without an address. Add a pool")
	if len(b.node().Spec.Taints) != 1 || len(b.withoutPool()) != 1 {
		t.Errorf("taints %v, series %v", b.node().Spec.Taints, b.withoutPool())
	}
	b.r.Cluster.Pools.Delete("p")
	b.r.Cluster.Pools.Set(fixtures.DualStack())
	b.settle()
	b.hasShortage(reasonEnough)
	if len(b.node().Spec.Taints) > 0 || len(b.withoutPool()) > 0 {
		t.Errorf("taints %v, series %v", b.node().Spec.Taints, b.withoutPool())
	}
}

// A node agent is silent from the start of Cilium's agent until its first report, as long as there is its Node.
func TestSilentNodeAgentIsReported(t *testing.T) {
	b := newBedIn(t, ciliumnode.DelegatedPlugin, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	expect := func(when string, isSilent bool) {
		t.Helper()
		b.settle()
		if got := len(fakeapi.Series(t, b.r.Metrics.silent)) > 0; got != isSilent {
			t.Errorf("%s: silent is %v", when, got)
		}
	}
	expect("without an agent", false)
	b.startAgent()
	expect("its agent has started", true)
	b.agentIs(func(cn *ciliumv2.CiliumNode) {
		cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 1}}}
	})
	expect("it has reported", false)
	b.agentIs(func(cn *ciliumv2.CiliumNode) { cn.Spec.IPAM.Pools.Requested = nil })
	expect("its CiliumNode is new", true)
	b.must(b.API.Delete(t.Context(), b.node()))
	expect("the Node is gone", false)
}

// An event says once to a pod that it asks for an unserved Cilium pool, and its Node says so. No
// taint keeps other pods off the node.
func TestPodWithoutPoolIsReported(t *testing.T) {
	pod := fixtures.Pod("web", "1", "n")
	pod.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "bleu"}
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"),
		fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"), pod)
	b.r.Reporter.NodeCondition, b.r.Cluster.ShortageTaint = true, "short"
	b.r.Cluster.Pods.Set(state.ReadPodWithRequest(pod), fixtures.Noon())
	b.settle()
	b.hasShortage(reasonNotServed)
	if got, want := b.EventsOf(event.ReasonCiliumPoolNotServed), "Warning CiliumPoolNotServed no PodIPPool gives ipv4 of Cilium's pool bleu to node n, as none has this ciliumPoolName (did you mean blue?); the annotation of pod default/web asks for it"; len(got) != 1 || got[0] != want {
		t.Errorf("events %q, want %q", got, want)
	}
	if len(b.node().Spec.Taints) > 0 {
		t.Errorf("taints %v", b.node().Spec.Taints)
	}
	b.writesNothing("settled")
	b.r.Cluster.Pods.Delete(state.ReadPod(pod).PodKey, fixtures.Noon())
	b.settle()
	b.hasShortage(reasonEnough)
	if got := b.EventsOf(event.ReasonCiliumPoolNotServed); len(got) > 0 {
		t.Errorf("more events %q", got)
	}
}

// Few of the pods with the same fault are told, and each pod once, also if the limit of events left
// it out at first.
func TestFewPodsWithoutPoolAreTold(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"))
	binds := func(name, uid, pool string) {
		pod := fixtures.Pod(name, uid, "n")
		pod.Annotations = map[string]string{"ipam.cilium.io/ip-pool": pool}
		b.r.Cluster.Pods.Set(state.ReadPodWithRequest(pod), fixtures.Noon())
	}
	tells := func(when string, want int) {
		t.Helper()
		b.settle()
		if got := b.EventsOf(event.ReasonCiliumPoolNotServed); len(got) != want {
			t.Errorf("%s: %d events, want %d: %q", when, len(got), want, got)
		}
	}
	for b.Events.SendOften(b.node(), nil, event.ReasonBlockClaimed, "") {
	}
	binds("w1", "1", "bleu")
	tells("in a storm", 0)
	b.Clock.SetTime(b.Clock.Now().Add(time.Minute))
	tells("after it", 1)
	tells("again", 0)
	for i := range 12 {
		binds(fmt.Sprint("a", i), fmt.Sprint("a", i), "bleu")
	}
	tells("of many", maxNotified-1)
	binds("web", "other", "green")
	tells("of another pool", 1)
	b.r.Cluster.Pods.Delete(state.ReadPod(fixtures.Pod("w1", "1", "n")).PodKey, fixtures.Noon())
	binds("a", "new", "bleu")
	tells("one for one that has gone", 1)
}

// A node with enough addresses has no shortage, even without a pool, and still gets no more.
func TestUnselectedNodeWithAddresses(t *testing.T) {
	b := newBed(t, fixtures.Node(), elsewherePool(), publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"), inService("10.0.0.0/30"))
	b.r.Reporter.NodeCondition = true
	b.settle()
	if got := b.node().Status.Conditions; len(got) > 0 || len(b.withoutPool()) != 1 {
		t.Errorf("conditions %v, series %v", got, b.withoutPool())
	}
	b.startAgent()
	b.pods(3)
	b.settle()
	b.hasShortage(reasonNoPool)
}

// Nodes without Cilium, and nodes that wait for their labels, are not reported as unselected.
func TestUnselectedNodeThatDoesNotCount(t *testing.T) {
	optedOut, tainted, starting := fixtures.Node(), fixtures.Node(), fixtures.Node()
	optedOut.Labels = map[string]string{v1alpha1.OptOutLabel: "true"}
	tainted.Spec.Taints = []corev1.Taint{{Key: "virtual", Effect: corev1.TaintEffectNoSchedule}}
	starting.Spec.Taints = []corev1.Taint{{Key: "starting", Effect: corev1.TaintEffectNoSchedule}}
	for name, node := range map[string]*corev1.Node{"opted out": optedOut, "an ignored taint": tainted, "a startup taint": starting} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, node, elsewherePool())
			b.r.Reporter.NodeCondition, b.r.Cluster.IgnoreTaints, b.r.Cluster.StartupTaints = true, map[string]bool{"virtual": true}, map[string]bool{"starting": true}
			b.settle()
			if len(b.withoutPool()) > 0 || len(b.node().Status.Conditions) > 0 {
				t.Errorf("series %v, conditions %v; want none", b.withoutPool(), b.node().Status.Conditions)
			}
		})
	}
}

// The series of a node is deleted with it.
func TestUnselectedNodeGone(t *testing.T) {
	b := newBed(t, fixtures.Node(), elsewherePool())
	b.settle()
	b.must(b.API.Delete(t.Context(), fixtures.Node()))
	b.settle()
	if got := b.withoutPool(); len(got) > 0 {
		t.Errorf("series %v of a node that is gone", got)
	}
}
