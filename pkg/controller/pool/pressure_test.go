package pool

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// The pressure is the utilisation of a pool, except of a pool that assigns no block.
func TestPressure(t *testing.T) {
	half := withPolicy(fixtures.PodIPPool("p", 1, "10.0.0.0/29", "10.0.0.8/29"), v1alpha1.AllocationDrain)
	for name, test := range map[string]struct {
		pool *v1alpha1.PodIPPool
		want int
	}{
		"one of four is held":         {fixtures.PodIPPool("p", 1, "10.0.0.0/28"), 25},
		"the only one is held":        {fixtures.PodIPPool("p", 1, "10.0.0.0/30"), 100},
		"one of three, which drains":  {half, 33},
		"where nothing can be gotten": {withPolicy(fixtures.PodIPPool("p", 1, "10.0.0.0/28"), v1alpha1.AllocationDrain), 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, test.pool, crd.NewBlock(fixtures.Prefix("10.0.0.0/30"), "p", "n", ""))
			pressure, pool := state.NewPressure(), b.Pools.Get("p")
			state.Press(pressure, pool, state.FamiliesOf(b.Ledger, pool))
			if got := pressure.TakenPercent("p", ipalloc.IPv4); got != test.want {
				t.Errorf("%d%%, want %d%%", got, test.want)
			}
		})
	}
}
