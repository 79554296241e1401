package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// registered is a bed with node n, which has just registered with the shortage taint.
func registered(t *testing.T, pool *v1alpha1.PodIPPool, families ...ipalloc.Family) *bed {
	t.Helper()
	node := fixtures.Node()
	node.Spec.Taints = []corev1.Taint{{Key: "short", Effect: corev1.TaintEffectNoSchedule}}
	b := newBed(t, node, pool)
	b.r.ShortageTaint, b.r.OfferFamilies = "short", families
	b.r.Unscheduled = scheduling.NewUnscheduled()
	return b
}

// settleOffers is settle, past the interval between two offers.
func (b *bed) settleOffers() {
	b.T.Helper()
	for range 3 {
		b.settle()
		b.Clock.SetTime(b.Clock.Now().Add(offerInterval))
	}
}

// A Node keeps the taint that it registered with until it offers addresses; from then on it
// offers them to all pods that wait for it.
func TestNodeKeepsTaintUntilItOffers(t *testing.T) {
	b := registered(t, fixtures.PodIPPool("p", 1, "10.0.0.0/24"), ipalloc.IPv4)
	at := -1 // the Node's offer when the taint goes
	b.Before = func(call string) {
		if call == "patch Node" {
			at = scheduling.OfferIn(b.node().Status.Allocatable)[ipalloc.IPv4]
		}
	}
	b.settleOffers()
	if taints := b.node().Spec.Taints; len(taints) != 1 {
		t.Fatalf("taints are %v before the agent has reported", taints)
	}
	b.reports("10.0.0.1")
	for range 2 { // it offers its first block, and its reserve
		b.Clock.SetTime(b.Clock.Now().Add(offerInterval))
		b.step()
	}
	b.offersOf(4)
	b.r.Unscheduled.(*scheduling.Unscheduled).SetNeeds(map[string]scheduling.NodeNeeds{"n": {Expected: [2]int{8}}})
	b.settleOffers()
	if taints := b.node().Spec.Taints; len(taints) > 0 || at < 8 {
		t.Errorf("taints are %v; the Node offered %d addresses when its taint went, want 8 or more", taints, at)
	}
}

// Without a block there is no offer, with any addresses of the agent's own.
func TestNodeWithoutBlockKeepsTaint(t *testing.T) {
	for name, families := range map[string][]ipalloc.Family{"offers": {ipalloc.IPv4}, "no offers": nil} {
		t.Run(name, func(t *testing.T) {
			full := fixtures.PodIPPool("p", 1, "10.0.0.0/30")
			b := registered(t, full, families...)
			b.must(b.API.Create(t.Context(), foreignBlock("10.0.0.0/30")))
			b.restart()
			b.r.ShortageTaint, b.r.OfferFamilies = "short", families
			b.settleOffers()
			if taints := b.node().Spec.Taints; len(taints) != 1 {
				t.Errorf("taints are %v", taints)
			}
		})
	}
}

// foreignBlock is a block in service of another node.
func foreignBlock(cidr string) *v1alpha1.PodIPBlock {
	block := inService(cidr)
	block.Spec.NodeName = "other"
	return block
}

// Where Nodes have no offers, one published address is enough.
func TestTaintGoesWithFirstBlock(t *testing.T) {
	b := registered(t, fixtures.PodIPPool("p", 1, "10.0.0.0/24"))
	b.settleAt(time.Minute)
	b.settle() // the published addresses have been read back
	if taints := b.node().Spec.Taints; len(taints) > 0 || len(b.CiliumNode().Pool) == 0 {
		t.Errorf("taints are %v, with %d addresses", taints, len(b.CiliumNode().Pool))
	}
}

// Cilium does not run on such a Node, so its pods need no address from a pool.
func TestOptedOutNodeLosesTaint(t *testing.T) {
	b := registered(t, fixtures.PodIPPool("p", 1, "10.0.0.0/24"), ipalloc.IPv4)
	b.changeNode(func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.OptOutLabel: "true"} })
	b.settle()
	if taints := b.node().Spec.Taints; len(taints) > 0 {
		t.Errorf("taints are %v", taints)
	}
}

// An operator with a Pod that does not tolerate the taint takes it off a Node that is still short.
func TestUntoleratedTaintIsRemoved(t *testing.T) {
	b := registered(t, fixtures.PodIPPool("p", 1, "10.0.0.0/30"))
	b.r.SetsNoTaint = true
	if err := b.r.setTaint(t.Context(), &observation{Snapshot: &state.Snapshot{Node: b.node()}}, nil, &shortage{unmet: true}); err != nil {
		t.Fatal(err)
	}
	if taints := b.node().Spec.Taints; len(taints) > 0 {
		t.Errorf("taints are %v", taints)
	}
}
