package pool

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
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
		if u := usageOf(pool, ledger.SizeInNodes("p7"), ledger.PoolBlocks("p7"), ledger.Free); u.held != 250 || u.nodes != 25 {
			b.Fatal(u.held, u.nodes)
		}
	}
}

// BenchmarkNoteReturned records n blocks that are cooling down, as each reconcile of their pool
// does: the time per block must not grow with their number.
func BenchmarkNoteReturned(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			blocks := manyCoolingDown(n)
			b.ReportAllocs()
			for b.Loop() {
				h := v1alpha1.PodIPPoolHistory{ReturnedBlocks: many(maxReturned)}
				noteReturned(&h, blocks, hour(9))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/block")
		})
	}
}

// manyCoolingDown returns blocks of which 50 begin to cool down each second, all of them later
// than what many lists.
func manyCoolingDown(n int) []crd.Block {
	var out []crd.Block
	for i := range n {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 11), byte(i >> 3), byte(i << 5)}), 27)
		b := coolingDown(claimed(cidr.String(), "n", 0), maxReturned, expand.Returned)
		b.Since = b.Since.Add(time.Duration(i/50) * time.Second)
		out = append(out, b)
	}
	return out
}
