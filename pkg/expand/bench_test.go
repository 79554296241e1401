package expand

import (
	"fmt"
	"net/netip"
	"testing"
)

// bigNode holds 16 blocks of 32 addresses, with 350 of them in use by pods.
func bigNode() State {
	s := node()
	for i := range 16 {
		full(fmt.Sprintf("10.0.%d.0/27", i))(&s)
	}
	for i, a := range sortedAddrs(s.Pool) {
		if i%4 == 0 || len(s.Pods) == 350 {
			continue
		}
		name := fmt.Sprintf("default/pod-%d", i)
		s.Used[a] = name
		s.Pods = append(s.Pods, Pod{Name: name, IPs: []netip.Addr{a}})
	}
	return s
}

// BenchmarkDecideNothing decides after a report of a settled node.
func BenchmarkDecideNothing(b *testing.B) {
	p, s := DefaultPolicy(), bigNode()
	plan, m := Decide(noon, p, s, Memory{})
	if !plan.Empty() {
		b.Fatal(plan)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, m = Decide(noon, p, s, m)
	}
}

// BenchmarkDecideDrain decides one step of a drain of half the blocks.
func BenchmarkDecideDrain(b *testing.B) {
	p, s := DefaultPolicy(), bigNode()
	for i := range s.Blocks[8:] {
		draining(Deleted)(&s.Blocks[8+i])
		request(Deleted)(&s.Blocks[8+i])
	}
	b.ReportAllocs()
	for b.Loop() {
		Decide(noon, p, s, Memory{})
	}
}
