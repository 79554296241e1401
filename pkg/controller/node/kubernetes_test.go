package node

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
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
	const want = "blocks 10.0.0.0/30 InService; lists 10.0.0.0/30"
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
func TestKubernetesNodeGone(t *testing.T) {
	b := kubernetesBed(t, nodeWith("10.0.0.0/30"), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), inService("10.0.0.0/30"))
	b.settle()
	b.must(b.API.Delete(t.Context(), fixtures.Node()))
	b.settle()
	b.is("blocks 10.0.0.0/30 CoolingDown; no CiliumNode")
	if got := b.block("10.0.0.0/30").Reason; got != expand.NodeGone {
		t.Errorf("it cools down as %s", got)
	}
	again := fixtures.Node()
	again.UID = "another-uid"
	b.must(b.API.Create(t.Context(), again))
	b.settle()
	b.listsOnly("10.0.0.0/30")
	b.must(b.API.Delete(t.Context(), fixtures.Node()))
	b.settle()
	b.settleAt(24 * time.Hour)
	b.is("no CiliumNode")
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
	if got := b.listed(); len(got) > 0 {
		t.Errorf("the Node is assigned %v", got)
	}
	if b.has(gone) {
		t.Errorf("block %s is left", gone)
	}
	if got := b.EventsOf(event.ReasonPodAddressShortage); len(got) != 1 || !strings.Contains(got[0], "runs with podCIDR 10.7.0.0/16") {
		t.Errorf("events are %q, want one that names the podCIDR", got)
	}
	if len(b.r.Awaiting.Wake(ipalloc.IPv4, []string{"p"})) > 0 {
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
	calls, err := b.reconcile()
	if diff := cmp.Diff([]string{"create PodIPBlock", "get CiliumNode"}, calls); diff != "" || err != nil {
		t.Errorf("%v; calls (-want +got):\n%s", err, diff)
	}
	calls, err = b.reconcile()
	if diff := cmp.Diff([]string{"get CiliumNode"}, calls); diff != "" || err != nil {
		t.Errorf("then %v; calls (-want +got):\n%s", err, diff)
	}
}

// A Node is deleted and recreated under its running agent. It gets back the block that the
// agent runs with: instead of one pinned to it, and instead of a new one even though the range
// drains. The other block is released.
func TestKubernetesNodeBackUnderItsAgent(t *testing.T) {
	const pinned, has = "10.0.0.0/30", "10.0.0.8/30"
	for _, phase := range []ipalloc.Phase{ipalloc.InService, ipalloc.Draining, ipalloc.CoolingDown} {
		t.Run(phase.String(), func(t *testing.T) {
			pool := fixtures.PodIPPool("p", 1, "10.0.0.0/29", "10.0.0.8/29")
			block := fixtures.BlockObject(has, phase)
			if phase != ipalloc.InService {
				pool.Spec.IPv4.CIDRs[1].AllocationPolicy = v1alpha1.AllocationDrain
				crd.SetBlockPhase(block, phase, expand.CIDRDraining, "x", fixtures.Noon())
			}
			if phase == ipalloc.CoolingDown {
				crd.SetBlockPhase(block, phase, expand.NodeGone, "x", fixtures.Noon())
			}
			again := fixtures.Node()
			again.UID = "another-uid"
			b := kubernetesBed(t, again, pool, block, inService(pinned), fixtures.CiliumNode("n", "", has))
			b.settle()
			b.listsOnly(has)
			b.settleAt(24 * time.Hour)
			if b.listsOnly(has); !b.has(has) || b.has(pinned) {
				t.Errorf("blocks are %+v, want %s alone", b.Blocks(), has)
			}
			b.settled()
		})
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
		b.is("blocks " + assigned + " InService; lists " + assigned)
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
