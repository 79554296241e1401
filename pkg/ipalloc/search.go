package ipalloc

import (
	"math"
	"math/bits"
)

// isFree reports whether no address of p is taken.
func (t *trie) isFree(p prefix) bool {
	_, ok := t.lowest(p, p.bits)
	return ok
}

// lowest returns the lowest free prefix of length bits in p.
func (t *trie) lowest(p prefix, bits uint8) (prefix, bool) {
	tr := t.seek(p)
	if tr.takenAbove(p) {
		return prefix{}, false
	}
	if n := tr.last(); n.has(p) {
		return t.lowestAt(n, n.place(p), bits)
	}
	return t.lowestIn(p, t.inside(&tr, p), bits)
}

// takenAbove reports whether p lies in a larger prefix that is taken; the trail holds the nodes
// around p.
func (tr *trail) takenAbove(p prefix) bool {
	for _, n := range tr.nodes[:tr.len] {
		if n.taken()&above[n.place(p)] != 0 {
			return true
		}
	}
	return false
}

// inside returns the topmost node in p, or nil. The trail holds the nodes around p; none of them
// has p as a place.
func (t *trie) inside(tr *trail, p prefix) *node {
	n := tr.last()
	if c := t.child(n, n.place(p)); c != nil && p.contains(c.prefix()) {
		return c
	}
	return nil
}

// lowestIn returns the lowest free prefix of length bits in p; n is the topmost node in p, or nil.
//
//	low, the first prefix of that length, is beside n: take it
//	|  low  |       |   n   |       |
//
//	low and n share addresses, and n is full: take what comes next
//	|  n: low | next  |             |
//
//	else n has it
func (t *trie) lowestIn(p prefix, n *node, bits uint8) (prefix, bool) {
	if largestFree(p.bits, n) > bits {
		return prefix{}, false
	}
	if n != nil {
		q := n.prefix()
		shared := min(q.bits, bits)
		if p.commonBits(q) >= shared {
			if n.free <= bits {
				return t.lowestAt(n, 1, bits)
			}
			p = q.shorten(shared).buddy()
		}
	}
	p.bits = bits
	return p, true
}

// lowestAt is lowestIn for a place of n that is not taken as a whole.
func (t *trie) lowestAt(n *node, place, length uint8) (prefix, bool) {
	if depth := length - n.bits; depth < stride {
		open := placesAtDepth[depth] & within[place] &^ n.blocked
		if open == 0 {
			return prefix{}, false
		}
		return n.at(uint8(bits.TrailingZeros64(open))), true
	}
	slots := t.slotsIn(n)
	for rest := slotsOf[place] &^ n.covered(); rest != 0; rest &= rest - 1 {
		s := uint8(bits.TrailingZeros64(rest))
		if n.below>>s&1 == 0 || slots.free[s] <= length {
			return t.lowestIn(n.at(slotCount+s), t.child(n, slotCount+s), length)
		}
	}
	return prefix{}, false
}

// count returns the number of free prefixes of length bits in p, at most MaxUint64. It visits only
// nodes with a free one below them.
func (t *trie) count(p prefix, bits uint8) uint64 {
	tr := t.seek(p)
	if tr.takenAbove(p) {
		return 0
	}
	if n := tr.last(); n.has(p) {
		return t.countAt(n, n.place(p), bits)
	}
	return t.countIn(p.bits, t.inside(&tr, p), bits)
}

// countIn counts in a prefix of length outer; n is the topmost node in it, or nil.
func (t *trie) countIn(outer uint8, n *node, bits uint8) uint64 {
	if largestFree(outer, n) > bits {
		return 0
	}
	if n == nil {
		return pow2(bits - outer)
	}
	if n.free > bits {
		return beside(outer, min(n.bits, bits), bits)
	}
	return addSat(beside(outer, n.bits, bits), t.countAt(n, 1, bits))
}

// countAt counts in a place of n.
func (t *trie) countAt(n *node, place, length uint8) uint64 {
	if depth := length - n.bits; depth < stride {
		return uint64(bits.OnesCount64(placesAtDepth[depth] & within[place] &^ n.blocked))
	}
	open := slotsOf[place] &^ n.covered()
	sum := uint64(0)
	for rest := open; rest != 0; rest &= rest - 1 {
		slot := slotCount + uint8(bits.TrailingZeros64(rest))
		sum = addSat(sum, t.countIn(n.bits+stride, t.child(n, slot), length))
	}
	return sum
}

// beside returns the number of prefixes of length bits in a prefix of length outer, but not in one of
// length n inside it, at most MaxUint64.
//
//	outer                             n
//	|        free        |   free   |   |  2^(bits-outer) - 2^(bits-n)
func beside(outer, n, bits uint8) uint64 {
	if outer == n {
		return 0
	}
	if bits-outer > 64 {
		return math.MaxUint64
	}
	return 1<<(bits-outer) - 1<<(bits-n) // 2^64 wraps to 0, and the difference is right
}

// overlaps yields the prefixes taken in one way that share addresses with p, p itself included, as
// node and place, ordered by address, then length, until yield returns false.
func (t *trie) overlaps(p prefix, kind taking, yield func(n *node, place uint8) bool) {
	tr := t.seek(p)
	for _, n := range tr.nodes[:tr.len] {
		for rest := n.places(kind) & above[n.place(p)]; rest != 0; rest &= rest - 1 {
			if !yield(n, uint8(bits.TrailingZeros64(rest))) {
				return
			}
		}
	}
	if n := tr.last(); n.has(p) {
		t.walk(n, n.place(p), kind, yield)
	} else if n = t.inside(&tr, p); n != nil {
		t.walk(n, 1, kind, yield)
	}
}

// walk yields the taken prefixes in a place or slot of n, in the order of overlaps.
func (t *trie) walk(n *node, place uint8, kind taking, yield func(n *node, place uint8) bool) bool {
	if place >= slotCount {
		c := t.child(n, place)
		return c == nil || t.walk(c, 1, kind, yield)
	}
	places := n.places(kind)
	if places&within[place] == 0 && n.below&slotsOf[place] == 0 {
		return true
	}
	return (places>>place&1 == 0 || yield(n, place)) && t.walk(n, 2*place, kind, yield) && t.walk(n, 2*place+1, kind, yield)
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
