package ipalloc_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func ExampleSpace() {
	s := ipalloc.NewSpace()

	// First, the existing blocks, and addresses that are not ours.
	_ = s.Restore(ipalloc.Held{
		CIDR:  netip.MustParsePrefix("10.0.0.0/27"),
		Owner: ipalloc.Owner{Pool: "beijing", Node: "node-1"},
	})
	s.Reserve(netip.MustParsePrefix("10.0.0.40/32"))
	s.SetReady()

	pool := ipalloc.Cut{Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/25")}, BlockBits: 27}
	for {
		block, err := s.Claim(pool, ipalloc.Owner{Pool: "beijing", Node: "node-2"}, nil)
		if errors.Is(err, ipalloc.ErrExhausted) {
			fmt.Println(err)
			break
		}
		fmt.Println(block, "of", pool.Total(), "in all,", s.Free(pool), "left")
	}
	// Output:
	// 10.0.0.64/27 of 4 in all, 1 left
	// 10.0.0.96/27 of 4 in all, 0 left
	// no free block left
}

// A node's next block is the other half of one it has, if that is free.
func ExampleSpace_Claim() {
	s := ipalloc.NewSpace()
	s.SetReady()
	pool := ipalloc.Cut{Ranges: []netip.Prefix{netip.MustParsePrefix("2001:db8::/48")}, BlockBits: 122}

	one, _ := s.Claim(pool, ipalloc.Owner{Node: "node-1"}, nil)
	two, _ := s.Claim(pool, ipalloc.Owner{Node: "node-2"}, nil)
	three, _ := s.Claim(pool, ipalloc.Owner{Node: "node-3"}, nil)
	s.Release(one)
	next, _ := s.Claim(pool, ipalloc.Owner{Node: "node-3"}, []netip.Prefix{three})

	fmt.Println(one, two, three)
	fmt.Println(next)
	// Output:
	// 2001:db8::/122 2001:db8::40/122 2001:db8::80/122
	// 2001:db8::c0/122
}

// A block that was read back is recorded even if it overlaps another.
func ExampleSpace_Restore() {
	s := ipalloc.NewSpace()
	for _, block := range []ipalloc.Held{
		{CIDR: netip.MustParsePrefix("10.0.0.0/24"), Owner: ipalloc.Owner{Pool: "adopted", Node: "node-1"}},
		{CIDR: netip.MustParsePrefix("10.0.0.32/27"), Owner: ipalloc.Owner{Pool: "beijing", Node: "node-2"}},
	} {
		if err := s.Restore(block); err != nil {
			fmt.Println(err)
		}
	}
	for _, held := range s.Overlapping(netip.MustParsePrefix("10.0.0.0/26")) {
		fmt.Println(held.CIDR, held.Owner)
	}
	// Output:
	// block 10.0.0.32/27 of node node-2 (pool beijing) overlaps block 10.0.0.0/24 of node node-1 (pool adopted)
	// 10.0.0.0/24 node node-1 (pool adopted)
	// 10.0.0.32/27 node node-2 (pool beijing)
}
