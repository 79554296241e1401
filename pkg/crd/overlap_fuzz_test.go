package crd_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// FuzzResolveOverlaps resolves overlaps of any pools. Open CIDRs share no address, one closes
// only for an open one, and neither the order of pools nor resolving twice changes anything.
func FuzzResolveOverlaps(f *testing.F) {
	f.Add([]byte{2, 1, 0, 4, 0, 0, 1, 0, 0, 8, 0, 0})
	f.Add([]byte{5, 1, 16, 2, 17, 3, 2, 32, 4, 33, 5, 3, 48, 6, 49, 7, 1, 64, 0, 65, 1, 2, 80, 2, 81, 3})
	f.Add([]byte{7, 0xff, 0xf0, 0x0f, 0xaa, 0x55, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0])
			data = data[1:]
			return b % n
		}
		var list []contender
		for i := range 1 + next(8) {
			flags := next(256)
			c := contender{name: fmt.Sprint("p", i), day: 1 + flags%3, deleting: flags&0xc0 == 0xc0}
			switch flags & 0x38 {
			case 0x38:
				c.policy = v1alpha1.AllocationCordon
			case 0x30:
				c.policy = v1alpha1.AllocationDrain
			}
			// Two CIDRs that do not overlap, as CIDRs of one pool must not.
			for _, top := range []byte{10, 11} {
				c.cidrs = append(c.cidrs, fuzzedPrefix(top, next(256), 8+next(7)))
			}
			list = append(list, c)
		}
		pools := contest(t, list)
		resolved := crd.ResolveOverlaps(pools)
		if err := checkResolved(resolved); err != nil {
			t.Fatalf("%+v: %v", list, err)
		}
		want := closed(resolved)
		if diff := cmp.Diff(want, closed(crd.ResolveOverlaps(resolved))); diff != "" {
			t.Errorf("%+v: resolved again (-want +got):\n%s", list, diff)
		}
		slices.Reverse(pools)
		if diff := cmp.Diff(want, closed(crd.ResolveOverlaps(pools))); diff != "" {
			t.Errorf("%+v: in another order (-want +got):\n%s", list, diff)
		}
	})
}

func fuzzedPrefix(top byte, second, bits int) string {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{top, byte(second), 0, 0}), bits).Masked().String()
}
