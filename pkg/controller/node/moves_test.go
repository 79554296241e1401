package node

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// unselecting is a pool that selects neither n nor m, and drains their blocks.
func unselecting(edits ...func(*v1alpha1.PodIPPoolSpec)) *v1alpha1.PodIPPool {
	return fixtures.Edited(elsewherePool(), func(s *v1alpha1.PodIPPoolSpec) {
		s.UnselectedNodes.Mode = v1alpha1.UnselectedNodesDrain
		for _, edit := range edits {
			edit(s)
		}
	})
}

// moving is a node with three blocks of a pool that does not select it, and node m with one
// block of that pool, which is moving off it.
func moving(pool *v1alpha1.PodIPPool, change func(int, *v1alpha1.PodIPBlock) client.Object) []client.Object {
	other := inService("10.0.0.12/30")
	other.Spec.NodeName, other.Finalizers = "m", nil
	crd.SetBlockPhase(other, ipalloc.Draining, expand.NodeUnselected, "x", fixtures.Noon())
	return append(threeBlocks(pool, change), other, fixtures.PodIPPool("q", 2, "10.9.0.0/27"))
}

// otherMoved removes the block of node m.
func (b *bed) otherMoved() {
	b.T.Helper()
	b.Watch()
	gone := b.block("10.0.0.12/30")
	b.must(b.API.Delete(b.T.Context(), inService("10.0.0.12/30")))
	b.r.Ledger.Remove(gone)
	b.settleAfter(time.Minute)
}

func (b *bed) mayMove(node string) bool {
	shares := []state.Share{{State: expand.State{Blocks: []expand.Block{{Request: expand.NodeUnselected}}}}}
	b.r.Pacing.Pace(node, shares, b.r.Ledger, func(netip.Prefix) *crd.Pool { return b.r.Pools.Get("p") }, b.Clock.Now())
	return shares[0].State.Blocks[0].Hold.For == ""
}

func TestNodesMoveOneByOne(t *testing.T) {
	b := newBed(t, moving(unselecting(), asIs)...)
	b.settle()
	waiting := []string{"10.0.0.0/30 InService held", "10.0.0.12/30 Draining", "10.0.0.4/30 InService held", "10.0.0.8/30 InService held"}
	b.hasPhases("while m moves", waiting...)
	if got := b.block("10.0.0.0/30").WaitNote; !strings.Contains(got, "pool p no longer selects this one, and nodes move off it 1 at a time") {
		t.Errorf("the condition says %q", got)
	}
	b.otherMoved()
	begun := []string{"10.0.0.0/30 Draining", "10.0.0.4/30 Draining", "10.0.0.8/30 Draining", "10.9.0.0/30 InService", "10.9.0.4/30 InService"}
	b.hasPhases("once m has moved", begun...)
	if b.mayMove("m") {
		t.Error("m may move while n does")
	}
	b.changeNode(func(n *corev1.Node) { n.Labels = map[string]string{"zone": "x"} })
	b.settle()
	if diff := cmp.Diff([]string{"10.0.0.0/30 InService", "10.0.0.4/30 InService", "10.0.0.8/30 InService"}, b.phases()[:3]); diff != "" {
		t.Fatalf("selected again:\n%s", diff)
	}
	if !b.mayMove("m") {
		t.Error("m waits for n, which the pool selects again")
	}
	b.Check("at the end")
}

// A block that leaves because it is idle does not make its node move before its turn, and a node that
// cannot begin to move does not take another's place.
func TestNodesThatDoNotMove(t *testing.T) {
	paused := moving(unselecting(), asIs)
	paused[0].(*corev1.Node).Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	for name, objects := range map[string][]client.Object{
		"a closed window": moving(unselecting(func(s *v1alpha1.PodIPPoolSpec) { s.Maintenance = fixtures.Nightly() }), asIs),
		"a paused node":   paused,
		"retained":        moving(unselecting(func(s *v1alpha1.PodIPPoolSpec) { s.UnselectedNodes.Mode = v1alpha1.UnselectedNodesRetain }), asIs),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, objects...)
			b.otherMoved()
			if got := b.block("10.0.0.0/30"); got.Phase != ipalloc.InService || !b.mayMove("m") {
				t.Fatalf("the block is %s (%s), or another node waits for it", got.Phase, got.Reason)
			}
		})
	}
	t.Run("idle", func(t *testing.T) {
		b := newBed(t, moving(unselecting(), func(i int, b *v1alpha1.PodIPBlock) client.Object {
			if i == 2 {
				crd.SetBlockPhase(b, ipalloc.Draining, expand.Reclaim, "x", fixtures.Noon())
			}
			return b
		})...)
		b.settle()
		if got := b.block("10.0.0.8/30"); got.Phase == ipalloc.Draining && got.Reason != expand.Reclaim {
			t.Errorf("the block drains as %s while m moves", got.Reason)
		}
	})
	t.Run("unless several may at a time", func(t *testing.T) {
		two := int32(2)
		b := newBed(t, moving(unselecting(func(s *v1alpha1.PodIPPoolSpec) { s.UnselectedNodes.MaxConcurrent = &two }), asIs)...)
		b.settle()
		if got := b.block("10.0.0.0/30"); got.Phase != ipalloc.Draining {
			t.Errorf("the block is %s (%s)", got.Phase, got.WaitNote)
		}
	})
}

// A first block that no agent has read is replaced at once.
func TestFirstBlocksDoNotWaitToMove(t *testing.T) {
	p := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	p.Spec.UnselectedNodes.Mode = v1alpha1.UnselectedNodesDrain
	other := inService("10.0.0.12/30")
	other.Spec.NodeName, other.Finalizers = "m", nil
	crd.SetBlockPhase(other, ipalloc.Draining, expand.NodeUnselected, "x", fixtures.Noon())
	b := newBed(t, fixtures.Node(), p, zoned("10.1.0.0/28"), other)
	b.settle()
	first := b.block("10.0.0.0/30")
	b.changeNode(labelled)
	b.settle()
	if is := b.block(first.CIDR.String()); is.Phase != ipalloc.Draining || is.Reason != expand.PoolChanged {
		t.Errorf("the first block is %s (%s), held: %q", is.Phase, is.Reason, is.WaitNote)
	}
	b.settleAfter(time.Hour)
	if len(b.CiliumNode().Release) == 0 {
		t.Error("its addresses are no longer marked, though no agent has come")
	}
}
