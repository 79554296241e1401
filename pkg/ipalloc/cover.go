package ipalloc

import (
	"net/netip"
	"slices"
)

// MaxHostBits returns the host bits of the largest block of a family. Of one that is not assigned
// whole, a CiliumNode lists the addresses one by one, at most 4096.
func MaxHostBits(f Family, whole bool) int {
	if !whole {
		return 12
	}
	return [2]int{IPv4: 16, IPv6: 80}[f]
}

// TooLarge reports whether a CIDR has more addresses than a block may have.
func TooLarge(cidr netip.Prefix, whole bool) bool {
	return HostBits(cidr) > MaxHostBits(FamilyOf(cidr.Addr()), whole)
}

// HostBits returns the number of bits of a CIDR's addresses beyond its prefix length.
func HostBits(cidr netip.Prefix) int { return cidr.Addr().BitLen() - cidr.Bits() }

// CountWhole returns the number of addresses of a CIDR, edges included, that an agent counts if the
// CIDR is assigned whole: 65536 of a larger IPv6 CIDR (Cilium v1.20.1,
// pkg/ipam/service/ipallocator/allocator.go, RangeSize).
func CountWhole(cidr netip.Prefix) int {
	if cidr.Addr().Is6() {
		return 1 << min(HostBits(cidr), 16)
	}
	return 1 << HostBits(cidr)
}

// Single returns an address as a prefix.
func Single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Narrower returns the intersection of two overlapping prefixes.
func Narrower(a, b netip.Prefix) netip.Prefix {
	if a.Bits() > b.Bits() {
		return a
	}
	return b
}

// Contains reports whether all of inner lies in outer.
func Contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// Covered reports whether all of cidr lies in one of cover.
func Covered(cidr netip.Prefix, cover []netip.Prefix) bool {
	return slices.ContainsFunc(cover, func(outer netip.Prefix) bool { return Contains(outer, cidr) })
}

// Uncovered returns the CIDRs of list that are not covered by one of cover.
func Uncovered(list, cover []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, cidr := range list {
		if !Covered(cidr, cover) {
			out = append(out, cidr)
		}
	}
	return out
}
