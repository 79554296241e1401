package pool

import (
	"slices"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestTaken(t *testing.T) {
	all := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	drains := fixtures.Draining(v1alpha1.MaintenancePolicy{})
	gone := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	gone.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
	for name, test := range map[string]struct {
		pool *v1alpha1.PodIPPool
		free uint64
		want int
	}{
		"untouched":                    {all, 4, 0},
		"half":                         {all, 2, 50},
		"full":                         {all, 0, 100},
		"what drains does not count":   {drains, 1, 75},
		"where nothing can be given":   {gone, 0, 0},
		"more is free than there was":  {all, 9, 0},
		"a quarter, from another view": {all, 3, 25},
	} {
		t.Run(name, func(t *testing.T) {
			if got := state.TakenPercent(fixtures.PoolOf(t, test.pool), ipalloc.IPv4, test.free); got != test.want {
				t.Errorf("%d%%, want %d%%", got, test.want)
			}
		})
	}
}

// Only nodes that hold an idle block are reconciled when the pressure changes, and only
// where it matters for their wait.
func TestPressureWakesIdleNodes(t *testing.T) {
	b := newBed(t)
	b.Pressure.SetIdle("idle", true)
	b.Pressure.SetIdle("busy", true)
	b.Pressure.SetIdle("busy", false)
	var woken []string
	b.r.QueueNode = func(node string) { woken = append(woken, node) }
	pool := fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	for _, step := range []struct {
		taken int
		wakes bool
	}{{50, false}, {89, false}, {90, true}, {90, false}, {95, true}, {80, true}, {79, false}} {
		woken = nil
		b.r.setPressure(pool, ipalloc.IPv4, step.taken)
		if got := slices.Equal(woken, []string{"idle"}); got != step.wakes || len(woken) > 1 {
			t.Errorf("%d%% taken wakes %v", step.taken, woken)
		}
	}
}
