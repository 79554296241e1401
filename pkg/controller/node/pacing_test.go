package node

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// threeBlocks returns a node's blocks in the range that drains: just as many as it needs.
func threeBlocks(pool *v1alpha1.PodIPPool, change func(i int, b *v1alpha1.PodIPBlock) client.Object) []client.Object {
	cidrs := []string{"10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"}
	objects := []client.Object{fixtures.Node(), pool, publishing(fixtures.CiliumNode("n", "", cidrs...), "10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.6", "10.0.0.9", "10.0.0.10")}
	for i, cidr := range cidrs {
		objects = append(objects, change(i, inService(cidr)))
	}
	return objects
}

func asIs(_ int, b *v1alpha1.PodIPBlock) client.Object { return b }

var (
	allHeld  = []string{"10.0.0.0/30 InService held", "10.0.0.4/30 InService held", "10.0.0.8/30 InService held"}
	allBegun = []string{"10.0.0.0/30 Draining", "10.0.0.4/30 Draining", "10.0.0.8/30 Draining", "10.0.1.0/30 InService", "10.0.1.4/30 InService"}
)

func TestDrainWaitsForItsWindow(t *testing.T) {
	b := newBed(t, threeBlocks(fixtures.Draining(fixtures.Nightly()), asIs)...)
	b.settle()
	b.hasPhases("before the window", allHeld...)
	is := b.object("10.0.0.0-30").Status
	if c, w := is.Conditions[0], is.WaitsFor; c.Status != "False" || c.Reason != v1alpha1.ReasonCIDRDraining || w.Reason != "Window" || !strings.HasSuffix(w.Message, "opens at 2026-01-01T22:00:00Z") {
		t.Errorf("the status says %+v", is)
	}
	result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("n"))
	if err != nil || result.RequeueAfter != 10*time.Hour {
		t.Errorf("looks again in %s, %v", result.RequeueAfter, err)
	}
	b.settleAt(10 * time.Hour)
	b.hasPhases("in the window", allBegun...)
	b.settleAt(12 * time.Hour)
	b.hasPhases("drains that have begun go on after the window", allBegun...)
	b.Check("after the window")
}

// A block that people delete does not wait for the window. A deleted pool's own windows apply to its
// blocks even if another pool rules the node.
func TestWaysPastAWindow(t *testing.T) {
	anytime, old := fixtures.Nightly(), fixtures.Draining(fixtures.Nightly())
	anytime.Policy = v1alpha1.MaintenanceUnrestricted
	old.Spec.IPv4.CIDRs[0].AllocationPolicy, old.Finalizers = v1alpha1.AllocationAllocate, []string{v1alpha1.Finalizer}
	second := func(i int, b *v1alpha1.PodIPBlock) client.Object {
		if i == 1 {
			return fixtures.BeingDeleted(b)
		}
		return b
	}
	requested := func(i int, b *v1alpha1.PodIPBlock) client.Object {
		b.Spec.Drain = new(i == 1)
		return b
	}
	lifted := fixtures.Draining(fixtures.Nightly())
	lifted.Generation, lifted.Spec.IPv4.CIDRs[0].AllocationPolicy = 2, v1alpha1.AllocationAllocate
	for name, test := range map[string]struct {
		objects []client.Object
		then    *v1alpha1.PodIPPool
		want    []string
	}{
		"a block deleted by hand":  {threeBlocks(fixtures.Draining(fixtures.Nightly()), second), nil, []string{"10.0.0.0/30 InService held", "10.0.0.4/30 Draining", "10.0.0.8/30 InService held"}},
		"a block drained by spec":  {threeBlocks(lifted, requested), nil, []string{"10.0.0.0/30 InService", "10.0.0.4/30 InService held", "10.0.0.8/30 InService"}},
		"unrestricted":             {threeBlocks(fixtures.Draining(anytime), asIs), nil, allBegun},
		"not of a pool that goes":  {append(threeBlocks(fixtures.BeingDeleted(old), asIs), fixtures.PodIPPool("q", 2, "10.9.0.0/28")), nil, allHeld},
		"the drain itself is over": {threeBlocks(fixtures.Draining(fixtures.Nightly()), asIs), lifted, []string{"10.0.0.0/30 InService", "10.0.0.4/30 InService", "10.0.0.8/30 InService"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, test.objects...)
			b.settle()
			if test.then != nil {
				b.r.Cluster.Pools.Set(test.then)
				b.settle()
			}
			b.hasPhases("in the end", test.want...)
		})
	}
}

func TestDrainsTakeTurns(t *testing.T) {
	one := intstr.FromInt32(1)
	b := newBed(t, threeBlocks(fixtures.Draining(v1alpha1.Maintenance{BlocksPerHour: &one}), asIs)...)
	for hour := range 3 {
		b.settleAt(time.Duration(hour)*time.Hour + time.Second)
		all := strings.Join(b.phases(), "\n")
		if begun, held := strings.Count(all, "Draining"), strings.Count(all, "held"); begun != hour+1 || held != 2-hour {
			t.Fatalf("hour %d: %d begun, %d held: %s", hour, begun, held, all)
		}
		for _, is := range b.Blocks() {
			if is.Obstacle.Reason == expand.WaitTurn && is.Obstacle.Note != "its turn: 1 blocks of pool p may begin in an hour, and as many have" {
				t.Errorf("block %s waits for %q", is.CIDR, is.Obstacle.Note)
			}
		}
	}
}

// reclaimable is a node with two blocks and demand for one, with an agent that has been settled
// since before noon.
func reclaimable(t *testing.T, pool *v1alpha1.PodIPPool) *bed {
	t.Helper()
	cn := using(publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29", "10.0.0.8/29"), append(hosts("10.0.0.0/29"), hosts("10.0.0.8/29")...)...), "10.0.0.1")
	b := newBed(t, fixtures.Node(), pool, cn, inService("10.0.0.0/29"), inService("10.0.0.8/29"))
	b.settleAgent()
	return b
}

func TestReclaimWaitsForItsWindow(t *testing.T) {
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.Maintenance = fixtures.Nightly()
	b := reclaimable(t, pool)
	b.settle()
	b.settleAt(time.Hour)
	b.hasPhases("before the window", "10.0.0.0/29 InService", "10.0.0.8/29 InService")
	b.settleAt(10 * time.Hour)
	b.hasPhases("in the window, idle all the while", "10.0.0.0/29 InService", "10.0.0.8/29 Draining")
}

// A refused reclaim does not count towards its pool's hourly limit, so the next attempt begins it. A
// reclaim with a lost response may have begun, so it counts.
func TestReclaimTakesATurn(t *testing.T) {
	one, pool := intstr.FromInt32(1), fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.Maintenance.BlocksPerHour = &one
	t.Run("refused", func(t *testing.T) {
		b := reclaimable(t, pool)
		b.settle()
		b.at(time.Hour)
		crossed := 0
		b.Before = func(call string) {
			if call == "update PodIPBlock status" && crossed < 3 {
				crossed++ // another writer is faster
				block := b.object("10.0.0.8-29")
				block.Labels = map[string]string{"crossed": fmt.Sprint(crossed)}
				b.must(b.API.Update(t.Context(), block))
			}
		}
		for range 4 { // after each loss the block must be idle anew
			b.settle()
			b.Clock.SetTime(b.Clock.Now().Add(11 * time.Minute))
		}
		b.hasPhases("after three refusals", "10.0.0.0/29 InService", "10.0.0.8/29 Draining")
		if n, wait := b.r.Pacing.PeekReclaims(b.r.Cluster.Pools.Get("p"), b.Clock.Now()); n != 0 || wait == 0 || crossed != 3 {
			t.Errorf("the reclaim that began used up no turn: budget %d, wait %s", n, wait)
		}
	})
	t.Run("unheard", func(t *testing.T) {
		b := reclaimable(t, pool)
		b.settle()
		b.at(time.Hour)
		b.Fate = func(write string) fakeapi.Fate {
			if write == "update PodIPBlock status" {
				return fakeapi.Unheard
			}
			return fakeapi.Done
		}
		for range 3 {
			if _, err := b.reconcile(); err != nil {
				break
			}
		}
		if n, _ := b.r.Pacing.PeekReclaims(b.r.Cluster.Pools.Get("p"), b.Clock.Now()); n != 0 {
			t.Errorf("budget %d", n)
		}
	})
}

func TestPressureShortensTheWait(t *testing.T) {
	for name, test := range map[string]struct {
		taken    int
		cordoned bool
		drains   bool
	}{
		"none": {taken: 50}, "a full pool": {taken: 100, drains: true},
		"cordoned, nearly full": {taken: 90, cordoned: true, drains: true}, "nearly full, no cordon": {taken: 90},
	} {
		t.Run(name, func(t *testing.T) {
			b := reclaimable(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
			b.changeNode(func(n *corev1.Node) { n.Spec.Unschedulable = test.cordoned })
			b.Pressure.Set(b.Pools.Get("p"), ipalloc.IPv4, test.taken)
			b.settle()
			b.settleAt(time.Minute) // a tenth of the ten minutes
			if got := b.block("10.0.0.8/29").Phase; (got == ipalloc.Draining) != test.drains {
				t.Errorf("it is %s", got)
			}
		})
	}
}

// unselecting is a pool that selects neither n nor m, and drains their blocks.
func unselecting(edits ...func(*v1alpha1.PodIPPoolSpec)) *v1alpha1.PodIPPool {
	return fixtures.Edited(elsewherePool(), func(s *v1alpha1.PodIPPoolSpec) {
		s.UnselectedNodes.Policy = v1alpha1.UnselectedNodesDrain
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

// newMovingBed returns a bed of moving's objects, with a settled agent on n.
func newMovingBed(t *testing.T, objects []client.Object) *bed {
	t.Helper()
	b := newBed(t, objects...)
	b.settleAgent()
	return b
}

// otherMoved removes the block of node m.
func (b *bed) otherMoved() {
	b.T.Helper()
	b.Watch()
	gone := b.block("10.0.0.12/30")
	b.must(b.API.Delete(b.T.Context(), inService("10.0.0.12/30")))
	b.r.Cluster.Ledger.Remove(gone)
	b.settleAfter(time.Minute)
}

func (b *bed) mayMove(node string) bool {
	shares := []state.Share{{State: expand.State{Blocks: []expand.Block{{Request: expand.NodeUnselected}}}}}
	b.r.Pacing.Settle(node, shares, b.Clock.Now())
	budgets := b.r.Pacing.DrainBudgets(node, shares, b.r.Cluster.Ledger, func(netip.Prefix) *crd.Pool { return b.r.Cluster.Pools.Get("p") }, b.Clock.Now())
	return len(budgets[0].Delays) == 0
}

func TestNodesMoveOneByOne(t *testing.T) {
	b := newMovingBed(t, moving(unselecting(), asIs))
	b.settle()
	waiting := []string{"10.0.0.0/30 InService held", "10.0.0.12/30 Draining", "10.0.0.4/30 InService held", "10.0.0.8/30 InService held"}
	b.hasPhases("while m moves", waiting...)
	if got := b.block("10.0.0.0/30").Obstacle.Note; !strings.Contains(got, "pool p no longer selects this one, and nodes move off it 1 at a time") {
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
		"retained":        moving(unselecting(func(s *v1alpha1.PodIPPoolSpec) { s.UnselectedNodes.Policy = v1alpha1.UnselectedNodesRetain }), asIs),
	} {
		t.Run(name, func(t *testing.T) {
			b := newMovingBed(t, objects)
			b.otherMoved()
			if got := b.block("10.0.0.0/30"); got.Phase != ipalloc.InService || !b.mayMove("m") {
				t.Fatalf("the block is %s (%s), or another node waits for it", got.Phase, got.Reason)
			}
		})
	}
	t.Run("idle", func(t *testing.T) {
		b := newMovingBed(t, moving(unselecting(), func(i int, b *v1alpha1.PodIPBlock) client.Object {
			if i == 2 {
				crd.SetBlockPhase(b, ipalloc.Draining, expand.Reclaim, "x", fixtures.Noon())
			}
			return b
		}))
		b.settle()
		if got := b.block("10.0.0.8/30"); got.Phase == ipalloc.Draining && got.Reason != expand.Reclaim {
			t.Errorf("the block drains as %s while m moves", got.Reason)
		}
	})
	full := moving(unselecting(), asIs)
	full[len(full)-1] = fixtures.Edited(fixtures.PodIPPool("q", 2, "10.9.0.0/27"), func(s *v1alpha1.PodIPPoolSpec) {
		s.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationCordon
	})
	for name, test := range map[string]struct {
		objects []client.Object
		refuse  map[string]error
		gone    bool
		dead    bool // its agent
		want    ipalloc.Phase
	}{
		"no block is free":  {objects: full},
		"claims fail":       {objects: moving(unselecting(), asIs), refuse: map[string]error{"create PodIPBlock": fakeapi.ErrLine}},
		"drains fail":       {objects: moving(unselecting(), asIs), refuse: map[string]error{"update PodIPBlock status": fakeapi.ErrLine}},
		"its agent is dead": {objects: moving(unselecting(), asIs), dead: true},
		"the Node is gone":  {objects: moving(unselecting(), asIs), gone: true, want: ipalloc.CoolingDown},
	} {
		t.Run(name, func(t *testing.T) {
			b := newMovingBed(t, test.objects)
			b.Watch()
			moved := b.block("10.0.0.12/30")
			b.must(b.API.Delete(t.Context(), inService("10.0.0.12/30")))
			b.r.Cluster.Ledger.Remove(moved)
			b.Refuse = test.refuse
			if test.dead {
				b.startAgent()
			}
			for i := range 5 {
				if i == 1 && test.gone { // it has claimed a replacement
					b.must(b.API.Delete(t.Context(), fixtures.Node()))
				}
				_, _ = b.reconcile()
			}
			if got := b.block("10.0.0.0/30"); got.Phase != test.want || !b.mayMove("m") {
				t.Fatalf("the block is %s (%s), or another node waits for it", got.Phase, got.Reason)
			}
		})
	}
	t.Run("its place is lost meanwhile", func(t *testing.T) {
		b := newMovingBed(t, moving(unselecting(func(s *v1alpha1.PodIPPoolSpec) { s.UnselectedNodes.MaxConcurrent = new(int32(2)) }), asIs))
		b.step() // it claims a replacement
		o := b.observe()
		decisions := b.r.decide(t.Context(), o)
		b.at(time.Hour)
		another := b.mayMove("k")
		if _, err := b.r.act(t.Context(), o, decisions, &result{}); !another || !errors.Is(err, errStale) {
			t.Errorf("k has no place, or the move begins: %v", err)
		}
	})
	t.Run("unless several may at a time", func(t *testing.T) {
		two := int32(2)
		b := newMovingBed(t, moving(unselecting(func(s *v1alpha1.PodIPPoolSpec) { s.UnselectedNodes.MaxConcurrent = &two }), asIs))
		b.settle()
		if got := b.block("10.0.0.0/30"); got.Phase != ipalloc.Draining {
			t.Errorf("the block is %s (%s)", got.Phase, got.Obstacle.Note)
		}
	})
}

// A first block that no agent has read is replaced at once.
func TestFirstBlocksDoNotWaitToMove(t *testing.T) {
	p := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	p.Spec.UnselectedNodes.Policy = v1alpha1.UnselectedNodesDrain
	other := inService("10.0.0.12/30")
	other.Spec.NodeName, other.Finalizers = "m", nil
	crd.SetBlockPhase(other, ipalloc.Draining, expand.NodeUnselected, "x", fixtures.Noon())
	b := newBed(t, fixtures.Node(), p, zoned("10.1.0.0/28"), other)
	b.settle()
	first := b.block("10.0.0.0/30")
	b.changeNode(labelled)
	b.settle()
	if is := b.block(first.CIDR.String()); is.Phase != ipalloc.Draining || is.Reason != expand.PoolChanged {
		t.Errorf("the first block is %s (%s), held: %q", is.Phase, is.Reason, is.Obstacle.Note)
	}
	b.settleAfter(time.Hour)
	if len(b.CiliumNode().Release) == 0 {
		t.Error("its addresses are no longer marked, though no agent has come")
	}
}
