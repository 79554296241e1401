package pool

import (
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// press records how full a pool is. One that assigns nothing exerts no pressure: no node waits
// for the blocks that come back to it.
func press(p *state.Pressure, pool *crd.Pool, families []familyUsage) {
	for _, f := range families {
		taken := 0
		if _, assigns := pool.Cut(f.family); assigns {
			taken = int(full(f.status.Blocks))
		}
		p.Set(pool, f.family, taken)
	}
}

// Pressure returns how full each pool is, by the blocks in the ledger.
func Pressure(ledger *state.Ledger, pools *state.Pools) *state.Pressure {
	p := state.NewPressure()
	for _, name := range pools.Names() {
		pool := pools.Get(name)
		press(p, pool, countsOf(ledger, pool))
	}
	return p
}
