package ipalloc

import "math"

// enter returns the topmost node inside p, or an empty place, or that p is
// covered: it lies in a larger prefix that is taken.
func (t *trie) enter(p prefix) (n *node, covered bool) {
	n = t.seek(p)
	for _, above := range t.path {
		if above.taken() {
			return nil, true
		}
	}
	if !n.in(p) {
		return nil, false
	}
	return n, false
}

// isFree says whether nobody has any address of p.
func (t *trie) isFree(p prefix) bool {
	n, covered := t.enter(p)
	return n == nil && !covered
}

// lowest returns the lowest free prefix of length bits in p. It takes the path
// along.
//
//	low, the first prefix of that length, is beside the topmost node n: take it
//	|  low  |       |   n   |       |
//
//	low and n share addresses, and n is full: take what comes next
//	|  n: low | next  |             |
//
//	else n has it: in the lower half that has a chunk large enough
func (t *trie) lowest(p prefix, bits uint8) (prefix, bool) {
	n, covered := t.enter(p)
	if covered || free(p.bits, n) > bits {
		return prefix{}, false
	}
	for !n.empty() {
		q := n.prefix()
		both := min(q.bits, bits)
		if p.common(q) < both {
			break
		}
		if n.free > bits {
			p = q.shorten(both).buddy()
			break
		}
		t.path = append(t.path, n)
		side := uint8(0)
		if free(q.bits+1, t.half(n, 0)) > bits {
			side = 1
		}
		p, n = q.half(side), t.half(n, side)
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
func (t *trie) countIn(in uint8, n *node, bits uint8) uint64 {
	switch {
	case free(in, n) > bits:
		return 0
	case n.empty():
		return pow2(bits - in)
	}
	sum := beside(in, min(n.bits, bits), bits)
	if n.free > bits {
		return sum
	}
	for side := range uint8(2) {
		sum = addSat(sum, t.countIn(n.bits+1, t.half(n, side), bits))
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
func (t *trie) overlaps(p prefix, yield func(n *node) bool) {
	n := t.seek(p)
	for _, above := range t.path {
		if above.owner != 0 && !yield(above) {
			return
		}
	}
	if n.in(p) {
		t.walk(n, yield)
	}
}

// walk yields the nodes of all blocks at and below n, in the order of overlaps.
func (t *trie) walk(n *node, yield func(n *node) bool) bool {
	if n.empty() {
		return true
	}
	return (n.owner == 0 || yield(n)) && t.walk(t.half(n, 0), yield) && t.walk(t.half(n, 1), yield)
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
