package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// threeBlocks returns a node's blocks in the range that drains: just as many as it needs.
func threeBlocks(pool *v1alpha1.PodIPPool, change func(i int, b *v1alpha1.PodIPBlock) client.Object) []client.Object {
	cn := publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"),
		"10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.6", "10.0.0.9", "10.0.0.10")
	objects := []client.Object{fixtures.Node(), pool, cn}
	for i, cidr := range []string{"10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"} {
		objects = append(objects, change(i, inService(cidr)))
	}
	return objects
}

func asIs(_ int, b *v1alpha1.PodIPBlock) client.Object { return b }

func TestDrainWaitsForItsWindow(t *testing.T) {
	b := newBed(t, threeBlocks(fixtures.Draining(fixtures.Nightly()), asIs)...)
	b.settle()
	held := []string{"10.0.0.0/30 InService held", "10.0.0.4/30 InService held", "10.0.0.8/30 InService held"}
	b.hasPhases("before the window", held...)
	if got := b.Blocks()[0].WaitNote; !strings.Contains(got, "opens at 2026-01-01T22:00:00Z") {
		t.Errorf("the condition says %q", got)
	}
	result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("n"))
	if err != nil || result.RequeueAfter != 10*time.Hour {
		t.Errorf("looks again in %s, %v", result.RequeueAfter, err)
	}

	b.settleAt(10 * time.Hour)
	begun := []string{"10.0.0.0/30 Draining", "10.0.0.4/30 Draining", "10.0.0.8/30 Draining", "10.0.1.0/30 InService", "10.0.1.4/30 InService"}
	b.hasPhases("in the window", begun...)

	b.settleAt(12 * time.Hour)
	b.hasPhases("what has begun goes on after the window", begun...)
	b.Check("after the window")
}

func TestHoldEndsWithItsReason(t *testing.T) {
	b := newBed(t, threeBlocks(fixtures.Draining(fixtures.Nightly()), asIs)...)
	b.settle()
	pool := fixtures.Draining(fixtures.Nightly())
	pool.Generation, pool.Spec.IPv4.CIDRs[0].AllocationPolicy = 2, v1alpha1.AllocationAllocate
	b.r.Pools.Set(pool)
	b.settle()
	want := []string{"10.0.0.0/30 InService", "10.0.0.4/30 InService", "10.0.0.8/30 InService"}
	b.hasPhases("in the end", want...)
}

func TestWaysPastAWindow(t *testing.T) {
	anytime := fixtures.Nightly()
	anytime.Mode = v1alpha1.MaintenanceUnrestricted
	deleted := func(i int, b *v1alpha1.PodIPBlock) client.Object {
		if i == 1 {
			return fixtures.BeingDeleted(b)
		}
		return b
	}
	tests := map[string]struct {
		pool   *v1alpha1.PodIPPool
		change func(int, *v1alpha1.PodIPBlock) client.Object
		want   []string
	}{
		"a block deleted by hand": {fixtures.Draining(fixtures.Nightly()), deleted, []string{
			"10.0.0.0/30 InService held", "10.0.0.4/30 Draining", "10.0.0.8/30 InService held",
		}},
		"anytime": {fixtures.Draining(anytime), asIs, []string{
			"10.0.0.0/30 Draining", "10.0.0.4/30 Draining", "10.0.0.8/30 Draining", "10.0.1.0/30 InService", "10.0.1.4/30 InService",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, threeBlocks(test.pool, test.change)...)
			b.settle()
			if diff := cmp.Diff(test.want, b.phases()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A deleted pool's own windows apply to its blocks even if another pool rules the node.
func TestPoolDeletedWaitsForItsWindow(t *testing.T) {
	old := fixtures.Draining(fixtures.Nightly())
	old.Spec.IPv4.CIDRs[0].AllocationPolicy, old.Finalizers = v1alpha1.AllocationAllocate, []string{v1alpha1.Finalizer}
	objects := append(threeBlocks(fixtures.BeingDeleted(old), asIs), fixtures.PodIPPool("q", 2, "10.9.0.0/28"))
	b := newBed(t, objects...)
	b.settle()
	want := []string{"10.0.0.0/30 InService held", "10.0.0.4/30 InService held", "10.0.0.8/30 InService held"}
	b.hasPhases("in the end", want...)
}

func TestDrainsTakeTurns(t *testing.T) {
	one := int32(1)
	b := newBed(t, threeBlocks(fixtures.Draining(v1alpha1.MaintenancePolicy{BlocksPerHour: &one}), asIs)...)
	count := func(what string) int {
		n := 0
		for _, line := range b.phases() {
			if strings.HasSuffix(line, what) {
				n++
			}
		}
		return n
	}
	for hour := range 3 {
		b.settleAt(time.Duration(hour)*time.Hour + time.Second)
		if begun, held := count("Draining"), count("held"); begun != hour+1 || held != 2-hour {
			t.Fatalf("hour %d: %d begun, %d held: %v", hour, begun, held, b.phases())
		}
	}
}

// A drain that finds no replacement keeps its turn from window to window, and leaves the next
// turn to others.
func TestTurnIsKeptUntilTheDrainStarts(t *testing.T) {
	one, pool := int32(1), fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain // and there is no other range
	pool.Spec.Maintenance = fixtures.Nightly()
	pool.Spec.Maintenance.BlocksPerHour = &one
	b := newBed(t, threeBlocks(pool, func(i int, block *v1alpha1.PodIPBlock) client.Object {
		if i > 0 {
			return fixtures.BeingDeleted(block) // requested otherwise: they need no turn
		}
		return block
	})...)
	for night := range 3 {
		b.settleAt(time.Duration(24*night+10) * time.Hour)
		left, wait := b.r.Pacing.Budget(b.r.Pools.Get("p"), b.Clock.Now())
		if free := wait == 0 && left > 0; free != (night > 0) {
			t.Errorf("night %d: a turn is left for another node: %t", night, free)
		}
		b.at(time.Duration(24*night+20) * time.Hour) // the window is shut
		b.settle()
	}
}

// reclaimable is a node with two blocks and demand for one, with an agent that has been settled
// since before noon.
func reclaimable(t *testing.T, pool *v1alpha1.PodIPPool) *bed {
	t.Helper()
	cn := publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29", "10.0.0.8/29"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6",
		"10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14")
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1")
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

// A refused reclaim does not count towards its pool's hourly limit, so the next attempt begins it.
func TestRefusedReclaimKeepsItsTurn(t *testing.T) {
	one, pool := int32(1), fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.Maintenance.BlocksPerHour = &one
	b := reclaimable(t, pool)
	b.settle()
	b.at(time.Hour)
	crossed := 0
	b.Before = func(call string) {
		if call == "update PodIPBlock status" && crossed < 3 {
			crossed++ // another writer is faster
			block := &v1alpha1.PodIPBlock{}
			if err := b.API.Get(t.Context(), client.ObjectKey{Name: "10.0.0.8-29"}, block); err != nil {
				t.Fatal(err)
			}
			block.Labels = map[string]string{"crossed": fmt.Sprint(crossed)}
			b.must(b.API.Update(t.Context(), block))
		}
	}
	for range 4 { // after each loss the block must be idle anew
		b.settle()
		b.Clock.SetTime(b.Clock.Now().Add(11 * time.Minute))
	}
	if diff := cmp.Diff([]string{"10.0.0.0/29 InService", "10.0.0.8/29 Draining"}, b.phases()); diff != "" || crossed != 3 {
		t.Errorf("after %d refusals:\n%s", crossed, diff)
	}
	if n, wait := b.r.Pacing.Budget(b.r.Pools.Get("p"), b.Clock.Now()); n != 0 || wait == 0 {
		t.Errorf("the reclaim that began used up no turn: budget %d, wait %s", n, wait)
	}
}

// A reclaim with a lost response may have begun, so it counts.
func TestUnheardReclaimUsesItsTurn(t *testing.T) {
	one, pool := int32(1), fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.Maintenance.BlocksPerHour = &one
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
	if n, _ := b.r.Pacing.Budget(b.r.Pools.Get("p"), b.Clock.Now()); n != 0 {
		t.Errorf("budget %d", n)
	}
}

// A drain that is withdrawn before it begins leaves its turn to the next one.
func TestTurnOfADrainThatIsOffComesBack(t *testing.T) {
	one, pool := int32(1), fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain // and there is no other range
	pool.Spec.Maintenance.BlocksPerHour = &one
	b := newBed(t, threeBlocks(pool, func(i int, block *v1alpha1.PodIPBlock) client.Object {
		if i > 0 {
			return fixtures.BeingDeleted(block) // requested otherwise: they need no turn
		}
		return block
	})...)
	b.settle()
	budget := func() int {
		n, _ := b.r.Pacing.Budget(b.r.Pools.Get("p"), b.Clock.Now())
		return n
	}
	if n := budget(); n != 0 {
		t.Fatalf("budget %d while a drain has the turn", n)
	}
	off := pool.DeepCopy()
	off.Generation, off.Spec.IPv4.CIDRs[0].AllocationPolicy = 2, v1alpha1.AllocationAllocate
	b.r.Pools.Set(off)
	b.settle()
	if n := budget(); n != 1 {
		t.Errorf("budget %d, want the turn back", n)
	}
}

func TestPressureShortensTheWait(t *testing.T) {
	for name, test := range map[string]struct {
		taken int
		node  *corev1.Node
		want  string
	}{
		"none":                   {50, fixtures.Node(), "10.0.0.8/29 InService"},
		"a full pool":            {100, fixtures.Node(), "10.0.0.8/29 Draining"},
		"cordoned, nearly full":  {90, &corev1.Node{ObjectMeta: fixtures.Node().ObjectMeta, Spec: corev1.NodeSpec{Unschedulable: true}}, "10.0.0.8/29 Draining"},
		"nearly full, no cordon": {90, fixtures.Node(), "10.0.0.8/29 InService"},
	} {
		t.Run(name, func(t *testing.T) {
			b := reclaimable(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
			if test.node.Spec.Unschedulable {
				b.must(b.API.Update(t.Context(), withVersion(t, b, test.node)))
			}
			b.Pressure.Set(b.Pools.Get("p"), ipalloc.IPv4, test.taken)
			b.settle()
			b.at(time.Minute) // a tenth of the ten minutes
			b.settle()
			if got := b.phases(); !slices.Contains(got, test.want) {
				t.Errorf("%v, want %s", got, test.want)
			}
		})
	}
}

// withVersion returns the object with the resourceVersion that the API server has.
func withVersion(t *testing.T, b *bed, n *corev1.Node) *corev1.Node {
	t.Helper()
	live := &corev1.Node{}
	if err := b.API.Get(t.Context(), client.ObjectKeyFromObject(n), live); err != nil {
		t.Fatal(err)
	}
	n.ResourceVersion = live.ResourceVersion
	return n
}
