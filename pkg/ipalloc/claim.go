package ipalloc

import "net/netip"

// Cut is a pool's share of one family, cut into blocks of one size.
type Cut struct {
	// Ranges are the CIDRs that blocks are cut from, in any order. They may
	// overlap each other. One too small for a block yields none, and so does
	// an invalid one. Bits beyond a range's length are ignored.
	Ranges []netip.Prefix
	// BlockBits is the prefix length of a block.
	BlockBits int
}

// Claim picks a free block, records it for o, and returns it. It allocates only room for more
// blocks than there ever were.
//
// near are the blocks that o's node holds, in any order. If the buddy of one of
// the same size is free, the lowest such buddy is taken:
//
//	|  held  | free |  rest of the pool
//	 near      buddy
//
// No larger chunk is split by that, and the node's blocks stay together. Otherwise it is the lowest
// free block of all ranges, by address. The answer depends on the blocks and reservations of the
// moment, not on their history.
//
// It returns ErrNotReady before SetReady, and ErrExhausted if each block of each range has a taken
// address.
func (s *Space) Claim(c Cut, o Owner, near []netip.Prefix) (netip.Prefix, error) {
	if !s.ready {
		return netip.Prefix{}, ErrNotReady
	}
	f, p, ok := s.freeBuddy(c, near)
	if !ok {
		f, p, ok = s.lowestFree(c)
	}
	if !ok {
		return netip.Prefix{}, ErrExhausted
	}
	s.tries[f].hold(p, o)
	return p.cidr(f), nil
}

// Free returns the number of blocks that could be claimed now, at most MaxUint64. Addresses in
// several ranges count once. The time it takes grows with the number of gaps between taken chunks,
// not with their size.
func (s *Space) Free(c Cut) uint64 {
	var sum uint64
	for i := range c.Ranges {
		if r, ok := c.rangeAt(i); ok && !c.repeats(i) {
			f, p := split(r)
			sum = addSat(sum, s.tries[f].count(p, uint8(c.BlockBits)))
		}
	}
	return sum
}

// Total returns the number of blocks that the ranges can be cut into, at most MaxUint64. Addresses
// in several ranges count once.
func (c Cut) Total() uint64 {
	var sum uint64
	for i := range c.Ranges {
		if r, ok := c.rangeAt(i); ok && !c.repeats(i) {
			sum = addSat(sum, pow2(uint8(c.BlockBits-r.Bits())))
		}
	}
	return sum
}

// freeBuddy returns the lowest free buddy of a block in near.
func (s *Space) freeBuddy(c Cut, near []netip.Prefix) (f Family, best prefix, found bool) {
	for _, cidr := range near {
		g, p, ok := blockPrefix(cidr)
		if !ok || cidr.Bits() != c.BlockBits || c.BlockBits == 0 {
			continue
		}
		p = p.buddy()
		cidr = p.cidr(g)
		if found && cidr.Addr().Compare(best.cidr(f).Addr()) >= 0 {
			continue
		}
		if c.has(cidr) && s.tries[g].isFree(p) {
			f = g
			best = p
			found = true
		}
	}
	return f, best, found
}

// lowestFree returns the free block with the lowest address. A range that starts
// below the best so far cannot yield a higher one: it either ends before that,
// or has all of it.
func (s *Space) lowestFree(c Cut) (f Family, best prefix, found bool) {
	for i := range c.Ranges {
		r, ok := c.rangeAt(i)
		if !ok || found && r.Addr().Compare(best.cidr(f).Addr()) >= 0 {
			continue
		}
		g, p := split(r)
		if p, ok = s.tries[g].lowest(p, uint8(c.BlockBits)); ok {
			f = g
			best = p
			found = true
		}
	}
	return f, best, found
}

// rangeAt returns range i, masked, and whether a block fits in it.
func (c Cut) rangeAt(i int) (netip.Prefix, bool) {
	r := c.Ranges[i]
	if !r.IsValid() || c.BlockBits < r.Bits() || c.BlockBits > FamilyOf(r.Addr()).Bits() {
		return netip.Prefix{}, false
	}
	return r.Masked(), true
}

// repeats reports whether another range contains all of range i: a larger one, or the same one
// earlier in the list. Prefixes overlap in no other way.
func (c Cut) repeats(i int) bool {
	r := c.Ranges[i]
	for j, second := range c.Ranges {
		if !second.Overlaps(r) {
			continue
		}
		if second.Bits() < r.Bits() || second.Bits() == r.Bits() && j < i {
			return true
		}
	}
	return false
}

// has reports whether one range contains all of the block.
func (c Cut) has(block netip.Prefix) bool {
	for _, r := range c.Ranges {
		if r.Overlaps(block) && r.Bits() <= block.Bits() {
			return true
		}
	}
	return false
}
