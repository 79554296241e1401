package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
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
	if got := b.Blocks()[0].WaitNote; !strings.Contains(got, "opens at 2026-01-01T22:00:00Z") {
		t.Errorf("the condition says %q", got)
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
	anytime.Mode = v1alpha1.MaintenanceUnrestricted
	old.Spec.IPv4.CIDRs[0].AllocationPolicy, old.Finalizers = v1alpha1.AllocationAllocate, []string{v1alpha1.Finalizer}
	second := func(i int, b *v1alpha1.PodIPBlock) client.Object {
		if i == 1 {
			return fixtures.BeingDeleted(b)
		}
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
		"unrestricted":             {threeBlocks(fixtures.Draining(anytime), asIs), nil, allBegun},
		"not of a pool that goes":  {append(threeBlocks(fixtures.BeingDeleted(old), asIs), fixtures.PodIPPool("q", 2, "10.9.0.0/28")), nil, allHeld},
		"the drain itself is over": {threeBlocks(fixtures.Draining(fixtures.Nightly()), asIs), lifted, []string{"10.0.0.0/30 InService", "10.0.0.4/30 InService", "10.0.0.8/30 InService"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, test.objects...)
			b.settle()
			if test.then != nil {
				b.r.Pools.Set(test.then)
				b.settle()
			}
			b.hasPhases("in the end", test.want...)
		})
	}
}

func TestDrainsTakeTurns(t *testing.T) {
	one := int32(1)
	b := newBed(t, threeBlocks(fixtures.Draining(v1alpha1.MaintenancePolicy{BlocksPerHour: &one}), asIs)...)
	for hour := range 3 {
		b.settleAt(time.Duration(hour)*time.Hour + time.Second)
		all := strings.Join(b.phases(), "\n")
		if begun, held := strings.Count(all, "Draining"), strings.Count(all, "held"); begun != hour+1 || held != 2-hour {
			t.Fatalf("hour %d: %d begun, %d held: %s", hour, begun, held, all)
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
	one, pool := int32(1), fixtures.PodIPPool("p", 1, "10.0.0.0/28")
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
		if n, wait := b.r.Pacing.Budget(b.r.Pools.Get("p"), b.Clock.Now()); n != 0 || wait == 0 || crossed != 3 {
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
		if n, _ := b.r.Pacing.Budget(b.r.Pools.Get("p"), b.Clock.Now()); n != 0 {
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
