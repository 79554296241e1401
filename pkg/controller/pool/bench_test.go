package pool

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const (
	benchPools  = 200
	benchBlocks = 50_000
)

// BenchmarkPoolUsage counts the blocks of one pool, as each reconcile of a pool does.
func BenchmarkPoolUsage(b *testing.B) {
	ledger := state.ReadyLedger(fixtures.ManyBlocks(benchPools, benchBlocks)...)
	pools := state.NewPools(fixtures.Defaults(), ledger)
	obj := fixtures.PodIPPool("p7", 8, "10.7.0.0/16")
	obj.Spec.IPv4.BlockSize = 24
	pools.Set(obj)
	pool := pools.Get("p7")
	b.ReportAllocs()
	for b.Loop() {
		if u := state.UsageOf(pool, ledger.PoolBlocks("p7"), ledger.Free); u.Held != 250 || u.Nodes != 25 {
			b.Fatal(u.Held, u.Nodes)
		}
	}
}
