package node

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const v4Annotation = "network.cilium.io/ipv4-pod-cidr"

func kubernetesBed(t *testing.T, objects ...client.Object) *bed {
	t.Helper()
	return newBedIn(t, ciliumnode.Kubernetes, objects...)
}

func nodeWith(podCIDR string) *corev1.Node {
	n := fixtures.Node()
	n.Annotations = map[string]string{v4Annotation: podCIDR}
	return n
}

// A Node gets one block, however many addresses its pool keeps free, and no CiliumNode: its
// agent creates that.
func TestKubernetesFirstBlock(t *testing.T) {
	const want = "blocks 10.0.0.0/30; lists 10.0.0.0/30"
	b := kubernetesBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	if diff := cmp.Diff([]string{"create PodIPBlock", "get CiliumNode", "patch Node"}, b.step()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	b.is(want)
	b.Check("at the end")
	b.settled()
	survivesEveryWrite(t, ciliumnode.Kubernetes, 2, want)
}

// A Node that has a podCIDR keeps it: as a block if it fits a pool, and as a taken range otherwise.
// A drain of it begins for nobody while the Node exists. A block that cools down is released while
// its Node has another one, even if this process did not see the Node change since: no older patch
// assigns a second one.
func TestKubernetesLeavesWhatIsThere(t *testing.T) {
	for name, test := range map[string]scenario{
		"one of a pool":    {objects: []client.Object{nodeWith("10.0.0.4/30")}, want: "blocks 10.0.0.4/30; lists 10.0.0.4/30"},
		"one of no pool":   {objects: []client.Object{nodeWith("10.9.0.0/24")}, want: "lists 10.9.0.0/24"},
		"of unlike length": {objects: []client.Object{nodeWith("10.0.0.0/29")}, want: "lists 10.0.0.0/29"},
		"a block that must leave": {
			objects: []client.Object{nodeWith("10.0.0.0/30"), fixtures.BeingDeleted(fixtures.BlockObject("10.0.0.0/30", ipalloc.Draining))},
			want:    "blocks 10.0.0.0/30 Draining; lists 10.0.0.0/30",
		},
		"a second block goes": {
			objects: []client.Object{nodeWith("10.0.0.4/30"), coolingDown("10.0.0.0/30"), inService("10.0.0.4/30")},
			want:    "blocks 10.0.0.4/30; lists 10.0.0.4/30",
		},
	} {
		test.mode, test.given, test.do = ciliumnode.Kubernetes, (*bed).settle, func(b *bed) { b.settleAt(24 * time.Hour) }
		runScenarios(t, map[string]scenario{name: test})
	}
}

// A block that was never assigned to its Node is released while the Node exists, with a fence
// in the Node itself, because the agent has no handshake. If the process dies after the fence,
// the next one writes another.
func TestKubernetesReleasesWhatWasNotAssigned(t *testing.T) {
	b := kubernetesBed(t, nodeWith("10.0.0.0/30"), fixtures.PodIPPool("p", 1, "10.0.0.0/28"),
		inService("10.0.0.0/30"), fixtures.BeingDeleted(coolingDown("10.0.0.8/30")))
	b.at(time.Hour)
	for _, dies := range []bool{true, false} {
		b.fenced()
		b.Fate = func(write string) fakeapi.Fate {
			if dies && write == "patch PodIPBlock" { // of the finalizer
				return fakeapi.Refused
			}
			return fakeapi.Done
		}
		for range 3 {
			if _, err := b.reconcile(); err != nil && !dies {
				t.Fatal(err)
			}
		}
		b.restart()
	}
	b.is("blocks 10.0.0.0/30; lists 10.0.0.0/30")
	b.settled()
}

// Its Node came back with another block. Until the agent has that one, no other node gets the first.
func TestKubernetesKeepsWhatTheAgentRunsWith(t *testing.T) {
	const first = "10.0.0.8/30"
	b := kubernetesBed(t, nodeWith("10.0.0.0/30"), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.CiliumNode("n", "", first),
		inService("10.0.0.0/30"), fixtures.BeingDeleted(coolingDown(first)))
	b.settleAt(time.Hour)
	if !b.has(first) {
		t.Error("the block is free")
	}
	b.changeAgent("10.0.0.0/30")
	b.settleAfter(time.Hour)
	b.is("blocks 10.0.0.0/30; lists 10.0.0.0/30")
}

// An agent that already runs with another podCIDR is not assigned a new one: it would lose its
// pods when it restarts. The operator reports that, and still does everything else for the
// node.
func TestKubernetesAgentRunsWithAnother(t *testing.T) {
	const gone = "10.0.0.8/30"
	b := kubernetesBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.CiliumNode("n", "", "10.7.0.0/16"),
		fixtures.BeingDeleted(coolingDown(gone)))
	b.settle()
	b.settleAt(time.Hour)
	if got := b.listed(); len(got) > 0 || b.has(gone) {
		t.Errorf("the Node is assigned %v; block %s is left: %t", got, gone, b.has(gone))
	}
	if got := b.EventsOf(event.ReasonPodAddressShortage); len(got) != 1 || !strings.Contains(got[0], "runs with podCIDR 10.7.0.0/16") {
		t.Errorf("events are %q, want one that names the podCIDR", got)
	}
	if len(b.r.Cluster.Awaiting.Wake(ipalloc.IPv4, []string{"p"})) > 0 {
		t.Error("the node waits for blocks of its pool")
	}

	b.changeAgent("") // it has gone
	b.settle()
	if got := b.listed(); len(got) != 1 {
		t.Errorf("listed %v, want a block", got)
	}
}

// changeAgent replaces the podCIDR that an agent reports to run with; "": none.
func (b *bed) changeAgent(podCIDR string) {
	b.T.Helper()
	list := "null"
	if podCIDR != "" {
		list = `["` + podCIDR + `"]`
	}
	b.agentWrites(`{"spec":{"ipam":{"podCIDRs":` + list + `}}}`)
}

// A new Node has no block, so the podCIDR its agent runs with is read only when one is
// assigned.
func TestKubernetesAgentMadeUpItsOwn(t *testing.T) {
	b := kubernetesBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.CiliumNode("n", "", "10.7.0.0/16"))
	for _, want := range [][]string{{"create PodIPBlock", "get CiliumNode"}, {"get CiliumNode"}} {
		if diff := cmp.Diff(want, b.step()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	}
}

// A block drains because its range does; its Node is deleted and recreated while no operator runs.
// The next leader assigns another block to the new Node. Of the two, the block that the Node names
// stays, whether or not the drain is canceled.
func TestKubernetesBlockThatTheNodeNamesWins(t *testing.T) {
	const old, assigned = "10.0.0.0/30", "10.0.0.8/30"
	bedOf := func(t *testing.T, lifted bool, phase ipalloc.Phase, objects ...client.Object) *bed {
		pool := fixtures.PodIPPool("p", 1, old, "10.0.0.8/29")
		if !lifted {
			pool.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
		}
		block := fixtures.BlockObject(old, phase)
		if phase == ipalloc.Draining {
			crd.SetBlockPhase(block, phase, expand.CIDRDraining, "x", fixtures.Noon())
		}
		again := fixtures.Node()
		again.UID = "another-uid"
		return kubernetesBed(t, append(objects, again, pool, block)...)
	}
	goes := func(t *testing.T, b *bed) {
		t.Helper()
		b.settle()
		b.settleAfter(24 * time.Hour)
		b.is("blocks " + assigned + "; lists " + assigned)
		b.settled()
	}
	t.Run("while it drains", func(t *testing.T) {
		b := bedOf(t, false, ipalloc.Draining)
		b.settle()
		if got := b.block(old); got.Phase != ipalloc.CoolingDown || got.Reason != expand.NodeGone {
			t.Errorf("block %s is %v (%s), want it to cool down as its machine may still run", old, got.Phase, got.Reason)
		}
		goes(t, b)
	})
	names := func(n *corev1.Node) { n.Annotations = map[string]string{v4Annotation: assigned} }
	for name, phase := range map[string]ipalloc.Phase{"after the drain was lifted": ipalloc.Draining, "after it was back in service": ipalloc.InService} {
		t.Run(name, func(t *testing.T) {
			b := bedOf(t, true, phase, inService(assigned))
			b.changeNode(names)
			goes(t, b)
		})
	}
	t.Run("not while an agent runs with it", func(t *testing.T) {
		b := bedOf(t, true, ipalloc.InService, inService(assigned), fixtures.CiliumNode("n", "", old))
		b.changeNode(names)
		b.settle()
		if got := b.block(old); got.Phase != ipalloc.InService {
			t.Fatalf("block %s is %v while its agent runs with it", old, got.Phase)
		}
		b.changeAgent(assigned)
		goes(t, b)
	})
}

// From a block of another Cilium pool, an agent in crd mode keeps the addresses of earlier pods
// and assigns none to new ones: those pods would belong to the default pool, and could not be
// restored once the block is listed for its own pool again.
func TestCiliumPoolOnTheWayToCRDAndBack(t *testing.T) {
	blue := crd.NewBlock(fixtures.Prefix("10.8.0.0/30"), "blues", "n", "node-uid")
	blue.UID = "uid-blue"
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.BluePool("10.8.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
		inService("10.0.0.0/30"), blue)
	b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"blue","cidrs":["10.8.0.0/30"]},{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
	pods := b.r.Cluster.Pods
	pods.Set(podOn("blue", "10.8.0.1"), fixtures.Noon().Add(-time.Hour))
	again := func(mode ciliumnode.Mode) {
		b.Mode = mode
		b.restart()
		b.r.Cluster.Pods = pods
		b.settleAgent()
		b.settle()
	}
	published := func(when string, want ...string) {
		t.Helper()
		var got []string
		for addr := range b.raw().Spec.IPAM.Pool {
			if strings.HasPrefix(addr, "10.8.") {
				got = append(got, addr)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	again(ciliumnode.CRD)
	published("the agent runs in multi-pool mode, and may have given out any", "10.8.0.1", "10.8.0.2")
	b.reports("10.0.0.1", "10.8.0.1")
	b.settle()
	if state := b.CiliumNode().Release; state[netip.MustParseAddr("10.8.0.1")] != "" || state[netip.MustParseAddr("10.8.0.2")] != expand.Marked {
		t.Fatalf("entries %v; want the address marked that is not in use", state)
	}
	answer := fakeapi.RawMerge(`{"status":{"ipam":{"release-ips":{"10.8.0.2":"ready-for-release"}}}}`)
	b.must(b.API.Status().Patch(t.Context(), fixtures.CiliumNode("n", ""), answer))
	b.settle()
	b.settleAt(time.Minute)
	published("the agent runs in crd mode", "10.8.0.1")
	b.Check("in crd mode")

	again(ciliumnode.MultiPool)
	if diff := cmp.Diff(fixtures.Prefixes("10.8.0.0/30"), b.CiliumNode().Of("blue").PodCIDRs, fixtures.CompareNetip()); diff != "" || len(b.CiliumNode().Of("").PodCIDRs) < 2 {
		t.Errorf("listed %v for the default pool, for blue (-want +got):\n%s", b.CiliumNode().Of("").PodCIDRs, diff)
	}
}
