package controller

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const (
	benchPools  = 200
	benchBlocks = 50_000
)

// large is a cluster of 200 pools of 250 blocks each, ten to a node.
func large(b *testing.B) *counted {
	f := newCounted(b, benchPools)
	for i := range benchBlocks {
		pool, n := i%benchPools, i/benchPools
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(pool), byte(n), 0}), 24)
		f.Ledger.Upsert(fixtures.Block(cidr.String(), fmt.Sprintf("p%d", pool), fmt.Sprintf("n%d-%d", pool, n/10), i))
	}
	return f
}

// BenchmarkPoolUsage counts the blocks of one pool, as each look at a pool does.
func BenchmarkPoolUsage(b *testing.B) {
	f := large(b)
	pool := f.Pools.Get("p7")
	b.ReportAllocs()
	for b.Loop() {
		if u := usageOf(pool, f.Ledger.PoolBlocks("p7"), f.Ledger.Free); len(u.nodes) != 25 {
			b.Fatal(len(u.nodes))
		}
	}
}

// BenchmarkPublication takes in CiliumNodes whose block is published and withdrawn in
// turn, and reports how many pools and nodes look again because of each.
func BenchmarkPublication(b *testing.B) {
	f := large(b)
	kept := []*ciliumnode.Stored{
		ciliumnode.ToStored(fixtures.CiliumNode("n7-0", "1000001", "10.7.0.0/24")),
		ciliumnode.ToStored(fixtures.CiliumNode("n7-0", "1000002", "10.7.0.0/24", "10.7.1.0/24")),
	}
	b.ReportAllocs()
	i, nodes, pools := 0, 0, 0
	for b.Loop() {
		f.ciliumNode(kept[i%2])
		i, nodes, pools = i+1, nodes+len(f.nodes), pools+len(f.pools)
		f.nodes, f.pools = f.nodes[:0], f.pools[:0]
	}
	b.ReportMetric(float64(nodes)/float64(i), "nodes/op")
	b.ReportMetric(float64(pools)/float64(i), "pools/op")
}
