package pool

import (
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
