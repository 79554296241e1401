package ipalloc

import (
	"net/netip"
	"slices"
)

// MaxHostBits bounds the size of a block: a CiliumNode lists its addresses one by one, at most
// 4096.
const MaxHostBits = 12

// Contains reports whether all of inner lies in outer.
func Contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// Covered reports whether all of cidr lies in one of by.
func Covered(cidr netip.Prefix, by []netip.Prefix) bool {
	return slices.ContainsFunc(by, func(outer netip.Prefix) bool { return Contains(outer, cidr) })
}

// Uncovered returns the CIDRs of list that are not covered by one of by.
func Uncovered(list, by []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, cidr := range list {
		if !Covered(cidr, by) {
			out = append(out, cidr)
		}
	}
	return out
}
