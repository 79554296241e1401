package ipalloc

import (
	"net/netip"
	"slices"
)

// MaxHostBits bounds a block: as a CiliumNode lists its addresses one by one, it
// has 4096 at the most.
const MaxHostBits = 12

// Contains reports whether the whole of inner lies in outer.
func Contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// Covered reports whether the whole of cidr lies in one of by.
func Covered(cidr netip.Prefix, by []netip.Prefix) bool {
	return slices.ContainsFunc(by, func(outer netip.Prefix) bool { return Contains(outer, cidr) })
}

// Uncovered are those of list that are not.
func Uncovered(list, by []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, cidr := range list {
		if !Covered(cidr, by) {
			out = append(out, cidr)
		}
	}
	return out
}
