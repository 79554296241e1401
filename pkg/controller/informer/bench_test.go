package informer

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// BenchmarkPublication delivers CiliumNodes with a block that is alternately published and
// withdrawn, and reports the numbers of pools and nodes that each one queues.
func BenchmarkPublication(b *testing.B) {
	f := newCounted(b, 200)
	for _, block := range fixtures.ManyBlocks(200, 50_000) {
		f.Ledger.Upsert(block)
	}
	kept := []*ciliumnode.View{
		ciliumnode.NewView(fixtures.CiliumNode("n7-0", "1000001", "10.7.0.0/24")),
		ciliumnode.NewView(fixtures.CiliumNode("n7-0", "1000002", "10.7.0.0/24", "10.7.1.0/24")),
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
