package ipalloc

import "math"

// enter returns the topmost node inside p (0: none), or that p is covered: it
// lies in a larger prefix that is taken.
func (t *trie) enter(p prefix) (n uint32, covered bool) {
	n = t.root
	for n != 0 {
		at := t.nodes.at(n)
		q := at.prefix()
		switch {
		case p.contains(q):
			return n, false
		case !q.contains(p):
			return 0, false
		case at.taken():
			return 0, true
		}
		n = at.child[p.bit(at.bits)]
	}
	return 0, false
}

// isFree says whether nobody has any address of p.
func (t *trie) isFree(p prefix) bool {
	n, covered := t.enter(p)
	return n == 0 && !covered
}

// halves returns the topmost nodes in the halves of a prefix of length bits, in
// which n is the topmost node.
func (t *trie) halves(bits uint8, n uint32) [2]uint32 {
	at := t.nodes.at(n)
	if at.bits == bits {
		return at.child
	}
	var h [2]uint32
	h[at.prefix().bit(bits)] = n
	return h
}

// lowest returns the lowest free prefix of length bits in p. It goes down one
// bit a step, left wherever the left half has a chunk that is large enough.
func (t *trie) lowest(p prefix, bits uint8) (prefix, bool) {
	n, covered := t.enter(p)
	if covered || t.free(p.bits, n) > bits {
		return prefix{}, false
	}
	for n != 0 {
		h := t.halves(p.bits, n)
		side := uint8(0)
		if t.free(p.bits+1, h[0]) > bits {
			side = 1
		}
		p, n = p.half(side), h[side]
	}
	p.bits = bits
	return p, true
}

// count returns how many prefixes of length bits are free in p, at most
// MaxUint64. It visits only nodes that have a free one below them.
func (t *trie) count(p prefix, bits uint8) uint64 {
	n, covered := t.enter(p)
	if covered {
		return 0
	}
	return t.countIn(p.bits, n, bits)
}

// countIn counts in a prefix of length in, in which n is the topmost node.
func (t *trie) countIn(in uint8, n uint32, bits uint8) uint64 {
	if t.free(in, n) > bits {
		return 0
	}
	if n == 0 {
		return pow2(bits - in)
	}
	at := t.nodes.at(n)
	sum := beside(in, min(at.bits, bits), bits)
	if at.free > bits {
		return sum
	}
	for _, child := range at.child {
		sum = addSat(sum, t.countIn(at.bits+1, child, bits))
	}
	return sum
}

// beside returns how many prefixes of length bits are in a prefix of length in,
// but not in one of length n inside it, at most MaxUint64.
//
//	in                                n
//	|        free        |   free   |   |  2^(bits-in) - 2^(bits-n)
func beside(in, n, bits uint8) uint64 {
	if in == n {
		return 0
	}
	if bits-in > 64 {
		return math.MaxUint64
	}
	return 1<<(bits-in) - 1<<(bits-n) // 2^64 wraps to 0, and the difference is right
}

// overlaps yields the nodes of all blocks that share addresses with p, in order
// of address, then length, until yield says no. One that has p itself is among
// them.
func (t *trie) overlaps(p prefix, yield func(n uint32) bool) {
	n := t.root
	for n != 0 {
		at := t.nodes.at(n)
		q := at.prefix()
		if p.contains(q) {
			t.walk(n, yield)
			return
		}
		if !q.contains(p) || at.owner != 0 && !yield(n) {
			return
		}
		n = at.child[p.bit(at.bits)]
	}
}

// walk yields the nodes of all blocks at and below n, in the order of overlaps.
func (t *trie) walk(n uint32, yield func(n uint32) bool) bool {
	if n == 0 {
		return true
	}
	at := t.nodes.at(n)
	return (at.owner == 0 || yield(n)) && t.walk(at.child[0], yield) && t.walk(at.child[1], yield)
}

// pow2 returns 2^n, at most MaxUint64.
func pow2(n uint8) uint64 {
	if n > 63 {
		return math.MaxUint64
	}
	return 1 << n
}

// addSat returns a+b, at most MaxUint64.
func addSat(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
