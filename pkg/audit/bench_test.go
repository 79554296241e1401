package audit

import (
	"fmt"
	"net/netip"
	"testing"
)

// A check of 1,000 nodes with 8 blocks of 32 addresses, and 100,000 pods.
func BenchmarkCheck(b *testing.B) {
	w := world{&Snapshot{Time: now}}
	w.pool("main", "10.0.0.0/8").Spec.IPv4.BlockSize = 27
	next := netip.MustParseAddr("10.0.0.0")
	for n := range 1000 {
		name := fmt.Sprintf("node-%d", n)
		w.node(name)
		cn, pods := w.cn(name), 0
		for range 8 {
			block := netip.PrefixFrom(next, 27)
			w.newBlock(name, block.String())
			cn.PodCIDRs = append(cn.PodCIDRs, block)
			for ; block.Contains(next); next = next.Next() {
				cn.Pool[next] = ""
				if pods < 100 {
					pods++
					cn.Used[next] = "default/x"
					w.pod(fmt.Sprintf("pod-%d-%d", n, pods), name, next.String())
				}
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if found := Check(w.Snapshot, settings()); len(found) > 0 {
			b.Fatalf("%d findings, the first is %s", len(found), short(found[0]))
		}
	}
}
