package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
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
	if got := fakeapi.Series(t, b.r.Metrics.offered); got["cilium_pool_node_offered_addresses ipv4 n"] != 10 || len(got) != 1 {
		t.Errorf("measured %v, want ten addresses of IPv4", got)
	}
	b.at(time.Minute)
	return b
}

// offersOf fails the test unless Node n offers want IPv4 addresses.
func (b *bed) offersOf(want int) {
	b.T.Helper()
	status := b.node().Status
	got := []scheduling.Offer{scheduling.OfferIn(status.Capacity), scheduling.OfferIn(status.Allocatable)}
	if diff := cmp.Diff([]scheduling.Offer{{want, scheduling.NoOffer}, {want, scheduling.NoOffer}}, got); diff != "" {
		b.T.Errorf("capacity, allocatable (-want +got):\n%s", diff)
	}
}

// changeStatus edits the status of node n as its kubelet does.
func (b *bed) changeStatus(mod func(*corev1.NodeStatus)) {
	b.T.Helper()
	n := b.node()
	mod(&n.Status)
	b.must(b.API.Status().Update(b.T.Context(), n))
}

// writesOnlyOffer fails the test unless the next reconcile writes the Node's offer and nothing else.
func (b *bed) writesOnlyOffer() {
	b.T.Helper()
	if calls := b.step(); !slices.Equal(calls, []string{writeOffer}) {
		b.T.Errorf("calls %v, want the offer", calls)
	}
}

// If the lower offer cannot be written, no address is marked, and the node's other changes proceed.
func TestNothingIsMarkedWithoutItsOffer(t *testing.T) {
	b := offering(t)
	b.at(time.Hour)
	b.Refuse = map[string]error{writeOffer: errors.New("no")}
	for range 5 {
		if calls, err := b.reconcile(); err == nil || slices.Contains(calls, writeMarks) {
			t.Errorf("the failure went unnoticed, or marks were written: %v", calls)
		}
	}
	b.hasPhases("the drain does not wait for the offer", "10.0.0.0/29 InService", "10.0.0.8/29 Draining")
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
	b.once(writeOffer, func() { b.changeNode(func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }) })
	if calls := b.step(); slices.Contains(calls, writeMarks) {
		t.Errorf("calls %v; want no mark, and another reconcile", calls)
	}
	b.offersOf(10)
	b.settle()
	b.offersOf(4)
}

// Pods that come and go together cause one write, a second after the last one. Pods that need no
// address lower the offer. Marks do not wait for that interval; the lower offer is written first.
func TestOffersAreCoalesced(t *testing.T) {
	b := offering(t)
	b.r.Cluster.Pods.Set(podOn("a"), fixtures.Noon())
	b.writesOnlyOffer()
	for _, name := range []string{"b", "c"} {
		b.r.Cluster.Pods.Set(podOn(name), fixtures.Noon())
		result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("n"))
		if err != nil || result.RequeueAfter != time.Second {
			t.Errorf("%+v, %v; want another reconcile in a second", result, err)
		}
	}
	b.offersOf(9)
	b.Clock.SetTime(b.Clock.Now().Add(time.Second))
	b.writesOnlyOffer()
	b.offersOf(7)
	b.callsNothing("offered")
	o := b.observe()
	decisions := []decision{{Share: &o.Shares[0], plan: expand.Plan{Mark: fixtures.Addrs("10.0.0.9", "10.0.0.10")}}}
	b.must(b.r.offer(t.Context(), o, decisions, &result{}))
	b.offersOf(5)
}

// A kubelet that registers again may zero extended resources.
func TestOfferIsRestored(t *testing.T) {
	zero := corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("0")}
	b := offering(t)
	for _, mod := range []func(*corev1.NodeStatus){
		func(s *corev1.NodeStatus) { s.Capacity, s.Allocatable = zero.DeepCopy(), zero.DeepCopy() },
		func(s *corev1.NodeStatus) { s.Capacity = zero.DeepCopy() },
		func(s *corev1.NodeStatus) { s.Allocatable = zero.DeepCopy() },
		func(s *corev1.NodeStatus) { s.Capacity, s.Allocatable = nil, nil },
	} {
		b.changeStatus(mod)
		b.writesOnlyOffer()
		b.offersOf(10)
		b.Clock.SetTime(b.Clock.Now().Add(time.Second))
	}
}

// An operator without the flag withdraws the offers of an earlier one and leaves other
// resources alone. A paused operator does not write to Nodes.
func TestOfferIsWithdrawn(t *testing.T) {
	b := offering(t)
	b.r.Cluster.Paused = true
	b.r.Cluster.Pods.Set(podOn("a"), fixtures.Noon())
	b.callsNothing("paused")
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

// The operator remembers its own last offer until the cache catches up.
func TestOfferIsNotWrittenTwice(t *testing.T) {
	b := offering(t)
	before := b.node()
	b.r.Cluster.Pods.Set(podOn("a"), fixtures.Noon())
	b.settle()
	b.offersOf(9)
	b.r.Cache = readerFunc(func(obj client.Object) error { // a cache that has an older version
		before.DeepCopyInto(obj.(*corev1.Node))
		return nil
	})
	b.Clock.SetTime(b.Clock.Now().Add(time.Minute))
	b.callsNothing("the cache lags")
	b.r.Cluster.Pods.Delete(podOn("a").PodKey, b.Clock.Now())
	b.settle()
	b.offersOf(10)
}

// Nodes without an agent in crd mode that runs the family offer no address. A missing CiliumNode
// does not lower an offer.
func TestOfferOf(t *testing.T) {
	reported, cn := []state.Share{{State: expand.State{Family: ipalloc.IPv4}}}, &ciliumnode.View{}
	for name, test := range map[string]struct {
		snapshot state.Snapshot
		want     int
		known    bool
	}{
		"no CiliumNode":       {state.Snapshot{Shares: reported}, 0, false},
		"nothing published":   {state.Snapshot{CiliumNode: cn, Shares: reported}, 0, true},
		"another IPAM":        {state.Snapshot{CiliumNode: cn, Standing: state.Standing{Kind: state.OtherIPAM}, Shares: reported}, scheduling.NoOffer, true},
		"adopted blocks":      {state.Snapshot{CiliumNode: cn, Standing: state.Standing{Kind: state.Adopting}, Shares: reported}, scheduling.NoOffer, true},
		"family not run":      {state.Snapshot{CiliumNode: cn, Shares: []state.Share{{State: expand.State{FamilyDisabled: true}}}}, scheduling.NoOffer, true},
		"no pool, no block":   {state.Snapshot{CiliumNode: cn}, scheduling.NoOffer, true},
		"of the other family": {state.Snapshot{CiliumNode: cn, Shares: []state.Share{{Family: ipalloc.IPv6}}}, scheduling.NoOffer, true},
	} {
		n, known := (&observation{Snapshot: &test.snapshot}).offerOf([]ipalloc.Family{ipalloc.IPv4}, nil, ipalloc.IPv4, "")
		if n != test.want || known != test.known {
			t.Errorf("%s: offers %d, known %t; want %d, %t", name, n, known, test.want, test.known)
		}
	}
}

// In multi-pool mode each Cilium pool has an offer of its own. A node gets a block of a pool for pods
// that are yet to be scheduled, before its agent asks for one, and offers no address of a block that
// its agent has returned.
func TestOffersOfCiliumPools(t *testing.T) {
	b, u := blueBed(t), scheduling.NewUnscheduled()
	b.r.OfferFamilies, b.r.Cluster.Unscheduled = []ipalloc.Family{ipalloc.IPv4}, u
	offers := func(want string) {
		t.Helper()
		b.settleOffers()
		if got := fmt.Sprint(scheduling.OffersIn(b.node().Status.Allocatable)); got != want {
			t.Errorf("offers %s, want %s", got, want)
		}
	}
	offers("map[:[0 -1]]") // the agent will take both addresses
	u.SetNeeds(map[scheduling.NodeCiliumPool]scheduling.NodeNeeds{{Node: "n", CiliumPool: "blue"}: {Expected: [2]int{3}}})
	offers("map[:[0 -1] blue:[4 -1]]")
	b.is("blocks 10.0.0.0/30 10.8.0.0/30 10.8.0.4/30; lists 10.0.0.0/30; lists blue 10.8.0.0/30 10.8.0.4/30")
	inBlue := fixtures.Pod("a", "a", "n", "10.8.0.1")
	inBlue.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "blue"}
	inBlue.Spec.Containers = []corev1.Container{fixtures.AddressesContainer(1)} // of the default pool
	b.r.Cluster.Pods.Set(state.ReadPodWithRequest(inBlue), fixtures.Noon())
	u.SetNeeds(nil)
	b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"blue","cidrs":["10.8.0.0/30"]},{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
	offers("map[:[1 -1] blue:[1 -1]]")
}

// registered is a bed with node n, which has just registered with the shortage taint.
func registered(t *testing.T, pool *v1alpha1.PodIPPool, families ...ipalloc.Family) *bed {
	t.Helper()
	node := fixtures.Node()
	node.Spec.Taints = []corev1.Taint{{Key: "short", Effect: corev1.TaintEffectNoSchedule}}
	b := newBed(t, node, pool)
	b.r.Cluster.ShortageTaint, b.r.OfferFamilies = "short", families
	b.r.Cluster.Unscheduled = scheduling.NewUnscheduled()
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
	b.r.Cluster.Unscheduled.(*scheduling.Unscheduled).SetNeeds(map[scheduling.NodeCiliumPool]scheduling.NodeNeeds{{Node: "n"}: {Expected: [2]int{8}}})
	b.settleOffers()
	if taints := b.node().Spec.Taints; len(taints) > 0 || at < 8 {
		t.Errorf("taints are %v; the Node offered %d addresses when its taint went, want 8 or more", taints, at)
	}
}

// Without a block there is no offer, with any addresses of the agent's own. Where Nodes have no
// offers, one published address is enough. Where Cilium does not run, no pod needs an address.
func TestShortageTaintOfANewNode(t *testing.T) {
	without := func(b *bed) {
		b.r.Cluster.Ledger.Upsert(fixtures.Block("10.0.0.0/28", "q", "m", 1))
	}
	for name, test := range map[string]struct {
		families []ipalloc.Family
		given    func(*bed)
		want     int
	}{
		"no block, with offers": {families: []ipalloc.Family{ipalloc.IPv4}, given: without, want: 1},
		"no block":              {given: without, want: 1},
		"a first block":         {given: func(*bed) {}},
		"no Cilium": {families: []ipalloc.Family{ipalloc.IPv4}, given: func(b *bed) {
			b.changeNode(func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.OptOutLabel: "true"} })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := registered(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), test.families...)
			test.given(b)
			b.settleOffers()
			if taints := b.node().Spec.Taints; len(taints) != test.want {
				t.Errorf("taints are %v, want %d", taints, test.want)
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

// An operator with a Pod that does not tolerate the taint takes it off a Node that is still short.
func TestUntoleratedTaintIsRemoved(t *testing.T) {
	b := registered(t, fixtures.PodIPPool("p", 1, "10.0.0.0/30"))
	b.r.SetsNoTaint = true
	b.must(b.r.setShortage(t.Context(), &observation{Snapshot: &state.Snapshot{Node: b.node()}}, nil, nil, &shortage{podsWait: true}, &wakeup{}))
	if taints := b.node().Spec.Taints; len(taints) > 0 {
		t.Errorf("taints are %v", taints)
	}
}
