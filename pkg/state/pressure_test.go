package state

import (
	"slices"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// When the pressure of a pool changes, only nodes with an idle block of it are reconciled, and only
// if it changes the block's wait.
func TestPressureWakesIdleNodes(t *testing.T) {
	p := NewPressure()
	of := func(pools ...string) [2][]string { return [2][]string{ipalloc.IPv4: pools} }
	p.SetIdle("idle", of("q", "p"))
	p.SetIdle("busy", of("p"))
	p.SetIdle("busy", of())
	p.SetIdle("of another pool", of("q"))
	p.SetIdle("of another family", [2][]string{ipalloc.IPv6: {"p"}})
	var woken []string
	p.Changed = func(nodes []string) { woken = nodes }
	pool := fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	for _, step := range []struct {
		taken int
		wakes bool
	}{{50, false}, {89, false}, {90, true}, {90, false}, {95, true}, {80, true}, {79, false}} {
		woken = nil
		p.Set(pool, ipalloc.IPv4, step.taken)
		if got := slices.Equal(woken, []string{"idle"}); got != step.wakes || len(woken) > 1 {
			t.Errorf("%d%% taken wakes %v", step.taken, woken)
		}
	}
}
