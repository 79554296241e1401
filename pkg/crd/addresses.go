package crd

import (
	"math"
	"math/big"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Usable returns the addresses of block that pods may have, sorted: all but the
// reserved ones and, unless the pool allows them, the first and the last. Blocks of one
// or two addresses include these two, as they have no network or broadcast address (RFC
// 3021). The block may be of any length and need not lie in the pool; one of more than
// 4096 addresses, which no CiliumNode could hold, has none.
func (p *Pool) Usable(block netip.Prefix) []netip.Addr {
	n := p.UsableCount(block)
	if n == 0 || ipalloc.TooLarge(block, false) {
		return nil
	}
	addr := block.Addr()
	if p.withoutFirst(block) {
		addr = addr.Next()
	}
	reserved := n < p.sizeIgnoringReserved(block, block)
	usable := make([]netip.Addr, 0, n)
	for ; len(usable) < n; addr = addr.Next() {
		if !reserved || !p.Reserved.Contains(addr) {
			usable = append(usable, addr)
		}
	}
	return usable
}

// UsableCount returns the number of addresses that Usable lists, without listing them; where agents
// are assigned whole blocks, also of a larger block.
func (p *Pool) UsableCount(block netip.Prefix) int {
	if !block.IsValid() || ipalloc.TooLarge(block, p.WholeBlocks) {
		return 0
	}
	n := p.sizeIgnoringReserved(block, block)
	for _, r := range p.reserved {
		if ipalloc.Contains(r, block) {
			return 0
		}
		if ipalloc.Contains(block, r) {
			n -= p.sizeIgnoringReserved(block, r)
		}
	}
	return max(n, 0) // an agent counts fewer addresses of a large IPv6 block than are reserved
}

// Skipped returns the blocks of family f that are not assigned to any node, sorted. They share no
// address, and adjacent skipped blocks are merged into wider prefixes. A block is routed as a
// whole, so by default it is every block that overlaps a reserved range. Where the pool publishes
// the remainder, it is the blocks without a usable address and, where agents are assigned whole
// blocks, the blocks with a reserved address that pods could have.
func (p *Pool) Skipped(f ipalloc.Family) []netip.Prefix { return p.skipped[f] }

// Skips reports whether block overlaps a block that is not assigned.
func (p *Pool) Skips(block netip.Prefix) bool {
	return overlapsAny(p.skipped[ipalloc.FamilyOf(block.Addr())], block)
}

// WithSkipped returns the pool as if blocks that share addresses with one of cidrs were
// skipped too: for counts. The pool may be nil.
func (p *Pool) WithSkipped(cidrs []netip.Prefix) *Pool {
	if p == nil || len(cidrs) == 0 {
		return p
	}
	skipping := *p
	for _, f := range ipalloc.Families() {
		ranges, ok := p.Ranges(f)
		if !ok {
			continue
		}
		var builder netipx.IPSetBuilder
		for _, s := range p.skipped[f] {
			builder.AddPrefix(s)
		}
		for _, c := range cidrs {
			for _, r := range ranges.CIDRs {
				if c.Overlaps(r.CIDR) {
					common := ipalloc.Narrower(c, r.CIDR)
					builder.AddPrefix(blockOf(common.Addr(), min(common.Bits(), ranges.Bits)))
				}
			}
		}
		if set, err := builder.IPSet(); err == nil {
			skipping.skipped[f] = set.Prefixes()
		}
	}
	return &skipping
}

// overlapsAny reports whether cidr shares addresses with one of sorted, which are
// disjoint.
func overlapsAny(sorted []netip.Prefix, cidr netip.Prefix) bool {
	i, _ := slices.BinarySearchFunc(sorted, cidr.Addr(), func(p netip.Prefix, a netip.Addr) int {
		return netipx.PrefixLastIP(p).Compare(a)
	})
	return i < len(sorted) && sorted[i].Overlaps(cidr)
}

// skippedOf computes Skipped. Its cost grows with the reserved prefixes, not with the
// pool.
func (p *Pool) skippedOf(f ipalloc.Family) []netip.Prefix {
	ranges, ok := p.Ranges(f)
	if !ok {
		return nil
	}
	if p.frozen { // the block size is unknown: no block may be claimed over its reserved ranges
		return p.reservedIn(f)
	}
	var skipped []netip.Prefix
	for _, r := range p.reservedIn(f) {
		if r.Bits() > ranges.Bits {
			r = blockOf(r.Addr(), ranges.Bits)
			if p.remainder && p.hasRemainder(r) {
				continue
			}
		}
		skipped = append(skipped, r)
	}
	return slices.Compact(skipped)
}

// hasRemainder reports whether anything of a block that is partly reserved can be
// published.
func (p *Pool) hasRemainder(block netip.Prefix) bool {
	n := p.UsableCount(block)
	return n > 0 && (!p.WholeBlocks || n == p.sizeIgnoringReserved(block, block))
}

// TotalAddresses returns the number of usable addresses of all blocks of cut that can be assigned,
// at most math.MaxInt64. The cut must be of this pool. It lists neither blocks nor addresses.
func (p *Pool) TotalAddresses(cut ipalloc.Cut) int64 {
	total := new(big.Int)
	for _, r := range cut.Ranges {
		f := ipalloc.FamilyOf(r.Addr())
		total.Add(total, p.sizeOfBlocksIgnoringReserved(r, cut.BlockBits))
		for _, s := range p.skipped[f] {
			if s.Overlaps(r) {
				total.Sub(total, p.sizeOfBlocksIgnoringReserved(ipalloc.Narrower(r, s), cut.BlockBits))
			}
		}
		for _, reserved := range p.reservedIn(f) {
			if reserved.Overlaps(r) && !p.Skips(reserved) {
				total.Sub(total, p.sizeOfBlocksIgnoringReserved(ipalloc.Narrower(r, reserved), cut.BlockBits))
			}
		}
	}
	if !total.IsInt64() {
		return math.MaxInt64
	}
	return total.Int64()
}

// sizeOfBlocksIgnoringReserved counts the addresses of prefix that pods may have without reservations; bits
// is the length of blocks. The prefix is part of one block, or whole blocks.
func (p *Pool) sizeOfBlocksIgnoringReserved(prefix netip.Prefix, bits int) *big.Int {
	block := blockOf(prefix.Addr(), bits)
	if prefix.Bits() >= bits {
		return big.NewInt(int64(p.sizeIgnoringReserved(block, prefix)))
	}
	n := big.NewInt(int64(p.sizeIgnoringReserved(block, block)))
	return n.Lsh(n, uint(bits-prefix.Bits()))
}

// AddressesPerBlock is the number of addresses that pods can have of a block of family f without
// reservations; 0 if the pool has no range of the family.
func (p *Pool) AddressesPerBlock(f ipalloc.Family) int {
	ranges, ok := p.Ranges(f)
	if !ok || len(ranges.CIDRs) == 0 {
		return 0
	}
	block := blockOf(ranges.CIDRs[0].CIDR.Addr(), ranges.Bits)
	return p.sizeIgnoringReserved(block, block)
}

// sizeIgnoringReserved counts the addresses of a part of block that pods may have without reservations.
func (p *Pool) sizeIgnoringReserved(block, part netip.Prefix) int {
	n := ipalloc.CountWhole(part)
	if p.withoutFirst(block) && part.Addr() == block.Addr() {
		n--
	}
	if p.withoutLast(block) && netipx.PrefixLastIP(part) == netipx.PrefixLastIP(block) {
		n--
	}
	return n
}

func (p *Pool) withoutFirst(block netip.Prefix) bool {
	return ipalloc.HostBits(block) > 1 && !p.rangesFor(block).AllowFirst
}

func (p *Pool) withoutLast(block netip.Prefix) bool {
	return ipalloc.HostBits(block) > 1 && !p.rangesFor(block).AllowLast
}

// reservedIn returns the reserved prefixes of family f, sorted and disjoint.
func (p *Pool) reservedIn(f ipalloc.Family) []netip.Prefix {
	var cidrs []netip.Prefix
	for _, r := range p.reserved {
		if ipalloc.FamilyOf(r.Addr()) == f {
			cidrs = append(cidrs, r)
		}
	}
	return cidrs
}

func blockOf(addr netip.Addr, bits int) netip.Prefix {
	return netip.PrefixFrom(addr, bits).Masked()
}

// PublicRanges returns the CIDRs of the pool, sorted, that do not lie in private (RFC 1918, RFC
// 4193) or shared address space (RFC 6598). Other CIDRs need an authority's assignment.
func (p *Pool) PublicRanges() []netip.Prefix {
	var public []netip.Prefix
	for _, r := range p.AllRanges() {
		inOwn := func(local string) bool { return ipalloc.Contains(netip.MustParsePrefix(local), r.CIDR) }
		if !slices.ContainsFunc([]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"}, inOwn) {
			public = append(public, r.CIDR)
		}
	}
	slices.SortFunc(public, netip.Prefix.Compare)
	return public
}
