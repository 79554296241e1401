package ipalloc

import "math/bits"

const (
	// stride is the number of bits of a prefix that a node covers.
	stride = 6
	// slotCount is the number of nodes that can be directly below one.
	slotCount = 1 << stride
	// nothing stands for "no free chunk": longer than any prefix.
	nothing = 255
)

// node stands for the prefixes that are less than stride bits longer than its own, by their places
// in a heap: 1 is its own prefix, 2i and 2i+1 are the halves of i. The next ones, 64 to 127, are
// its slots, and other nodes lie in them:
//
//	place 1        |               10.0.0.0/24               |
//	places 2, 3    |    10.0.0.0/25     |   10.0.0.128/25    |
//	...
//	places 32..63  | .0/29 | .8/29 | ...            | .248/29|
//	slots 64..127  |.0/30|.4/30| ...                  |.252/30|
//
// A node fits a line of the processor's cache.
type node struct {
	hi, lo uint64 // its prefix, as long as bits says
	// Sets of places: held by blocks, reserved, and sharing an address with a block or reservation
	// here or in a slot.
	held, reserved, blocked uint64

	below uint64 // set of slots that have a node, as their numbers less slotCount
	slots uint32 // place of these; 0: no slot has a node
	// owner is the owner of the only held place, or the index of the owners of several.
	owner uint32
	bits  uint8 // a multiple of stride
	free  uint8 // length of the largest free chunk, or nothing
}

// slots are the topmost nodes in a node's slots, and the length of the largest free chunk in
// each. A slot without a node has zeros.
type slots struct {
	nodes [slotCount]uint32
	free  [slotCount]uint8
}

// By place: the places of all shorter prefixes that contain it; the place itself and all places
// in it; the slots in it (for a slot, itself).
var above, within, slotsOf = heapSets()

// placesAtDepth are, by number of bits, the places that are this many bits longer than their node.
var placesAtDepth = [stride]uint64{1 << 1, 3 << 2, 0xf << 4, 0xff << 8, 0xffff << 16, 0xffffffff << 32}

func heapSets() (above, within, slotsOf [2 * slotCount]uint64) {
	for i := 2*slotCount - 1; i > 0; i-- {
		for up := i / 2; up > 0; up /= 2 {
			above[i] |= 1 << up
		}
		if i >= slotCount {
			slotsOf[i] = 1 << (i - slotCount)
			continue
		}
		within[i] = 1<<i | within[2*i] | within[2*i+1]
		slotsOf[i] = slotsOf[2*i] | slotsOf[2*i+1]
	}
	return above, within, slotsOf
}

func (n *node) prefix() prefix { return prefix{n.hi, n.lo, n.bits} }

// taken returns the places that are held or reserved.
func (n *node) taken() uint64 { return n.held | n.reserved }

// taking is a way of taking a place.
type taking uint8

const (
	byBlock taking = iota
	byReservation
)

// places returns those taken in one way.
func (n *node) places(kind taking) uint64 {
	if kind == byReservation {
		return n.reserved
	}
	return n.held
}

// around reports whether p is n's prefix, or lies in it.
func (n *node) around(p prefix) bool { return n.prefix().contains(p) }

// has reports whether p, which n is around, is one of its places.
func (n *node) has(p prefix) bool { return p.bits < n.bits+stride }

// place returns the place of p, which n is around, or the slot that p lies in.
func (n *node) place(p prefix) uint8 {
	depth := min(p.bits-n.bits, stride)
	return 1<<depth | p.part(n.bits, depth)
}

// at returns the prefix of a place or slot.
func (n *node) at(place uint8) prefix {
	depth := uint8(bits.Len8(place)) - 1
	return n.prefix().extend(depth, place-1<<depth)
}

// covered returns the slots that lie in a taken place.
func (n *node) covered() (set uint64) {
	for rest := n.taken(); rest != 0; rest &= rest - 1 {
		set |= slotsOf[bits.TrailingZeros64(rest)]
	}
	return set
}

// recomputeBlocked recomputes which places are blocked.
func (n *node) recomputeBlocked() {
	set := uint64(0)
	for rest := n.taken(); rest != 0; rest &= rest - 1 {
		place := bits.TrailingZeros64(rest)
		set |= above[place] | within[place]
	}
	for rest := n.below; rest != 0; rest &= rest - 1 {
		set |= above[slotCount+bits.TrailingZeros64(rest)]
	}
	n.blocked = set
}

// largest returns the length of the largest free chunk. slots are those of n, if any has a
// node.
func (n *node) largest(slots *slots) uint8 {
	for depth, places := range placesAtDepth {
		if places&^n.blocked != 0 {
			return n.bits + uint8(depth)
		}
	}
	if n.below == 0 {
		return nothing // an open slot would leave the place around it open, too
	}
	open := ^n.covered()
	if open&^n.below != 0 {
		return n.bits + stride
	}
	largest := uint8(nothing)
	for rest := open; rest != 0; rest &= rest - 1 {
		largest = min(largest, slots.free[bits.TrailingZeros64(rest)])
	}
	return largest
}

// largestFree returns the length of the largest free chunk in a prefix of length bits. n is the topmost
// node in it, or nil.
//
//	n is nil     n is smaller          n fills it
//
//	|      |     | n|  |      |        |  n   |
//	 bits               bits+1          n's summary
//
// In the middle the half without n is free, and no larger chunk can be.
func largestFree(bits uint8, n *node) uint8 {
	if n == nil {
		return bits
	}
	if n.bits == bits {
		return n.free
	}
	return bits + 1
}
