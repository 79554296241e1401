package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const (
	writeOffer = "patch Node status"
	writeMarks = "patch CiliumNode status"
)

// offering is a node with two blocks of six addresses and demand for one, which offers ten
// addresses: the agent has one, and is about to take another.
func offering(t *testing.T) *bed {
	t.Helper()
	b := reclaimable(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.r.OfferFamilies = []ipalloc.Family{ipalloc.IPv4}
	b.settle()
	b.offersOf(10)
	b.at(time.Minute)
	return b
}

// offersOf fails the test unless Node n offers want IPv4 addresses.
func (b *bed) offersOf(want int) {
	b.T.Helper()
	status := b.node().Status
	for what, list := range map[string]corev1.ResourceList{"capacity": status.Capacity, "allocatable": status.Allocatable} {
		if diff := cmp.Diff(scheduling.Offer{want, scheduling.NoOffer}, scheduling.OfferIn(list)); diff != "" {
			b.T.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// changeStatus edits the status of node n as its kubelet does.
func (b *bed) changeStatus(mod func(*corev1.NodeStatus)) {
	b.T.Helper()
	n := b.node()
	mod(&n.Status)
	b.must(b.API.Status().Update(b.T.Context(), n))
}

// When an address is marked, the Node no longer offers it.
func TestOfferPrecedesMarks(t *testing.T) {
	b := offering(t)
	b.at(time.Hour)
	var at []int // the Node's offer as addresses are marked
	b.Before = func(call string) {
		if call == writeMarks {
			at = append(at, scheduling.OfferIn(b.node().Status.Allocatable)[ipalloc.IPv4])
		}
	}
	b.settle()
	if len(b.CiliumNode().Release) != 6 || !slices.Equal(at, []int{4}) {
		t.Errorf("release entries %v, marked with %v addresses offered; want six, and 4 offered", b.CiliumNode().Release, at)
	}
	b.offersOf(4)
}

// If the lower offer cannot be written, no address is marked, and the node's other changes proceed.
func TestNothingIsMarkedWithoutItsOffer(t *testing.T) {
	b := offering(t)
	b.at(time.Hour)
	b.Refuse = map[string]error{writeOffer: errors.New("no")}
	var calls []string
	for range 5 {
		more, err := b.reconcile()
		if err == nil {
			t.Error("the failure went unnoticed")
		}
		calls = append(calls, more...)
	}
	if slices.Contains(calls, writeMarks) || len(b.CiliumNode().Release) > 0 {
		t.Errorf("marked while the Node offers what leaves: %v", calls)
	}
	b.hasPhases("the drain waits for the offer", "10.0.0.0/29 InService", "10.0.0.8/29 Draining")
	b.Refuse = nil
	b.settle()
	if len(b.CiliumNode().Release) != 6 {
		t.Errorf("release entries are %v, want six", b.CiliumNode().Release)
	}
	b.offersOf(4)
}

// Of two leaders, the leader that decided on an older Node conflicts.
func TestOfferLosesAgainstAChangeOfTheNode(t *testing.T) {
	b := offering(t)
	b.at(time.Hour)
	crossed := false
	b.Before = func(call string) {
		if call == writeOffer && !crossed {
			crossed = true
			b.changeNode(func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} })
		}
	}
	if calls, err := b.reconcile(); err != nil || slices.Contains(calls, writeMarks) {
		t.Errorf("calls %v, %v; want no mark, and another reconcile", calls, err)
	}
	b.offersOf(10)
	b.settle()
	b.offersOf(4)
}

// Pods that come and go together cause one write, a second after the last one. Pods that need no
// address lower the offer.
func TestOffersAreCoalesced(t *testing.T) {
	b := offering(t)
	b.r.Pods.Set(podOn("a"), fixtures.Noon())
	if calls, err := b.reconcile(); err != nil || !slices.Equal(calls, []string{writeOffer}) {
		t.Errorf("calls %v, %v; want the offer at once", calls, err)
	}
	for _, name := range []string{"b", "c"} {
		b.r.Pods.Set(podOn(name), fixtures.Noon())
		result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("n"))
		if err != nil || result.RequeueAfter != time.Second {
			t.Errorf("%+v, %v; want another reconcile in a second", result, err)
		}
	}
	b.offersOf(9)
	b.Clock.SetTime(b.Clock.Now().Add(time.Second))
	if calls, err := b.reconcile(); err != nil || !slices.Equal(calls, []string{writeOffer}) {
		t.Errorf("calls %v, %v; want one write", calls, err)
	}
	b.offersOf(7)
	b.callsNothing("at rest")
}

// Marks do not wait for the interval between offers; the lower offer is written first.
func TestOfferForMarksDoesNotWait(t *testing.T) {
	b := offering(t)
	b.r.Pods.Set(podOn("a"), fixtures.Noon())
	b.settle()
	b.offersOf(9)
	o, err := b.r.observe(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	plans := []familyPlan{{Share: &o.Shares[0], plan: expand.Plan{Mark: fixtures.Addrs("10.0.0.9", "10.0.0.10")}}}
	if err := b.r.offer(t.Context(), o, plans, &outcome{}); err != nil || len(plans[0].plan.Mark) != 2 {
		t.Errorf("%v, marks %v; want both marks", err, plans[0].plan.Mark)
	}
	b.offersOf(7)
}

// A kubelet that registers again may zero extended resources.
func TestOfferIsRestored(t *testing.T) {
	zero := corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("0")}
	for name, mod := range map[string]func(*corev1.NodeStatus){
		"both":        func(s *corev1.NodeStatus) { s.Capacity, s.Allocatable = zero.DeepCopy(), zero.DeepCopy() },
		"capacity":    func(s *corev1.NodeStatus) { s.Capacity = zero.DeepCopy() },
		"allocatable": func(s *corev1.NodeStatus) { s.Allocatable = zero.DeepCopy() },
		"gone":        func(s *corev1.NodeStatus) { s.Capacity, s.Allocatable = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := offering(t)
			b.changeStatus(mod)
			if calls, err := b.reconcile(); err != nil || !slices.Equal(calls, []string{writeOffer}) {
				t.Errorf("calls %v, %v; want the offer", calls, err)
			}
			b.offersOf(10)
		})
	}
}

// An operator without the flag withdraws the offers of an earlier one and leaves other
// resources alone.
func TestOfferIsWithdrawn(t *testing.T) {
	b := offering(t)
	b.changeStatus(func(s *corev1.NodeStatus) {
		s.Capacity["example.org/gpu"] = resource.MustParse("2")
		s.Capacity[v1alpha1.IPv6Resource] = resource.MustParse("7")
	})
	b.restart()
	b.settleAgent()
	b.settle()
	b.offersOf(scheduling.NoOffer)
	if got := b.node().Status.Capacity["example.org/gpu"]; got.Value() != 2 {
		t.Errorf("capacity is %v", b.node().Status.Capacity)
	}
	b.settled()
}

// A paused operator does not write to Nodes.
func TestPausedOperatorKeepsOffers(t *testing.T) {
	b := offering(t)
	b.r.Paused = true
	b.r.Pods.Set(podOn("a"), fixtures.Noon())
	b.callsNothing("at rest")
}

// lagging is a cache that returns an older version of a Node.
type lagging struct {
	client.Reader
	node *corev1.Node
}

func (l lagging) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if node, ok := obj.(*corev1.Node); ok {
		l.node.DeepCopyInto(node)
		return nil
	}
	return l.Reader.Get(ctx, key, obj, opts...)
}

// The operator remembers its own last offer until the cache catches up.
func TestOfferIsNotWrittenTwice(t *testing.T) {
	b := offering(t)
	before := b.node()
	b.r.Pods.Set(podOn("a"), fixtures.Noon())
	b.settle()
	b.offersOf(9)
	b.r.Cache = lagging{b.API, before}
	b.Clock.SetTime(b.Clock.Now().Add(time.Minute))
	b.callsNothing("at rest")
	b.r.Pods.Delete(podOn("a").PodKey, b.Clock.Now())
	b.settle()
	b.offersOf(10)
}

// Nodes without an agent in crd mode that runs the family offer no address. A missing CiliumNode
// does not lower an offer.
func TestOfferOf(t *testing.T) {
	reported := expand.State{Family: ipalloc.IPv4}
	tests := map[string]struct {
		snapshot state.Snapshot
		want     int
		known    bool
	}{
		"no CiliumNode":       {state.Snapshot{Shares: []state.Share{{State: reported}}}, 0, false},
		"nothing published":   {state.Snapshot{CiliumNode: &ciliumnode.View{}, Shares: []state.Share{{State: reported}}}, 0, true},
		"another IPAM":        {state.Snapshot{CiliumNode: &ciliumnode.View{}, OtherIPAM: true, Shares: []state.Share{{State: reported}}}, scheduling.NoOffer, true},
		"adopted blocks":      {state.Snapshot{CiliumNode: &ciliumnode.View{}, Adopting: true, Shares: []state.Share{{State: reported}}}, scheduling.NoOffer, true},
		"family not run":      {state.Snapshot{CiliumNode: &ciliumnode.View{}, Shares: []state.Share{{State: expand.State{FamilyDisabled: true}}}}, scheduling.NoOffer, true},
		"no pool, no block":   {state.Snapshot{CiliumNode: &ciliumnode.View{}}, scheduling.NoOffer, true},
		"of the other family": {state.Snapshot{CiliumNode: &ciliumnode.View{}, Shares: []state.Share{{Family: ipalloc.IPv6}}}, scheduling.NoOffer, true},
	}
	families := []ipalloc.Family{ipalloc.IPv4}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n, known := (&observation{Snapshot: &test.snapshot}).offerOf(families, nil, ipalloc.IPv4)
			if n != test.want || known != test.known {
				t.Errorf("offers %d, known %t; want %d, %t", n, known, test.want, test.known)
			}
		})
	}
}
