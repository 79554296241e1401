package ipalloc

import "math/bits"

// trie holds the taken prefixes of one family, by blocks and by reservations. Prefixes may lie
// inside one another. Its nodes look at stride bits at a time: among a million blocks a look-up
// visits five of them instead of twenty, and most of its time is the processor's wait for uncached
// memory. Stretches without a fork are skipped. The zero trie is empty and ready to use. It must
// not be copied.
//
//	taken: 10.0.0.0/27, 10.0.0.64/26, and 10.0.0.96/32 inside the latter
//
//	0.0.0.0/0
//	    slot of 8.0.0.0/6
//	        10.0.0.0/24            10.0.0.0/27 and 10.0.0.64/26 held
//	            slot of 10.0.0.96/30
//	                10.0.0.96/30   10.0.0.96/32 held
//
// Each node knows the largest aligned chunk that is wholly free below it, the summary that a buddy
// allocator keeps. Free space is the rest, and is never listed.
type trie struct {
	root     node // of the whole address space
	nodes    arena[node]
	slots    arena[slots]
	several  arena[[slotCount]uint32] // owners of a node with several places held
	owners   arena[Owner]
	reserved map[prefix]uint32 // number of reservations; never 0
}

// trail are the nodes around a prefix, from the root down.
type trail struct {
	nodes [128/stride + 1]*node
	len   int
}

func (tr *trail) add(n *node) {
	tr.nodes[tr.len] = n
	tr.len++
}

func (tr *trail) last() *node { return tr.nodes[tr.len-1] }

// child returns the topmost node in a slot of n, nil if there is none.
func (t *trie) child(n *node, slot uint8) *node {
	s := slot % slotCount
	if n.below>>s&1 == 0 {
		return nil
	}
	return t.nodes.at(t.slots.at(n.slots).nodes[s])
}

// seek returns all nodes around p. The last one has p as one of its places, or p lies in one of its
// slots. The topmost node of this slot, if any, lies in p or beside it.
func (t *trie) seek(p prefix) (tr trail) {
	for n := &t.root; n != nil && n.around(p); n = t.child(n, n.place(p)) {
		tr.add(n)
		if n.has(p) {
			break
		}
	}
	return tr
}

// ownerOf returns the owner of the block with exactly this prefix, or nil. The pointer is valid
// until the next release.
func (t *trie) ownerOf(p prefix) *Owner {
	n := &t.root
	for !n.has(p) {
		if n = t.child(n, n.place(p)); n == nil || !n.around(p) {
			return nil
		}
	}
	if place := n.place(p); n.held>>place&1 != 0 {
		return t.owners.at(*t.ownerAt(n, place))
	}
	return nil
}

// ownerAt returns the index of a held place's owner.
func (t *trie) ownerAt(n *node, place uint8) *uint32 {
	if n.held == 1<<place {
		return &n.owner
	}
	return &t.several.at(n.owner)[place]
}

// hold takes p for a block of o. No block may have p already.
func (t *trie) hold(p prefix, o Owner) {
	tr := t.grow(p)
	n := tr.last()
	if bits.OnesCount64(n.held) == 1 {
		var owners [slotCount]uint32
		owners[bits.TrailingZeros64(n.held)] = n.owner
		n.owner = t.several.add(owners)
	}
	place := n.place(p)
	n.held |= 1 << place
	*t.ownerAt(n, place) = t.owners.add(o)
	t.settle(p, &tr)
}

// release undoes hold. It returns false if no block has p.
func (t *trie) release(p prefix) bool {
	tr := t.seek(p)
	n := tr.last()
	place := n.place(p)
	if !n.has(p) || n.held>>place&1 == 0 {
		return false
	}
	owner := t.ownerAt(n, place)
	t.owners.drop(*owner)
	*owner = 0
	n.held &^= 1 << place
	if bits.OnesCount64(n.held) == 1 {
		several := n.owner
		n.owner = t.several.at(several)[bits.TrailingZeros64(n.held)]
		t.several.drop(several)
	}
	t.settle(p, &tr)
	return true
}

func (t *trie) reserve(p prefix) {
	if t.reserved == nil {
		t.reserved = map[prefix]uint32{}
	}
	t.reserved[p]++
	tr := t.grow(p)
	n := tr.last()
	n.reserved |= 1 << n.place(p)
	t.settle(p, &tr)
}

// unreserve undoes one reserve. It returns false if p is not reserved.
func (t *trie) unreserve(p prefix) bool {
	switch t.reserved[p] {
	case 0:
		return false
	case 1:
		delete(t.reserved, p)
		tr := t.seek(p)
		n := tr.last()
		n.reserved &^= 1 << n.place(p)
		t.settle(p, &tr)
	default:
		t.reserved[p]--
	}
	return true
}

// grow makes the node that has p as one of its places, if need be, and returns the nodes around p.
// The caller takes the place and then calls settle, as the nodes' summaries of free space are not
// right any more.
//
//	the slot is empty     its node lies in p's, or beside: at the fork is a node
//
//	        n                     n                  n
//	        |                     |                  |
//	      p's own               p's own             fork
//	                              |                 |  |
//	                            its node     p's own    its node
func (t *trie) grow(p prefix) trail {
	tr := t.seek(p)
	n := tr.last()
	if n.has(p) {
		return tr
	}
	place := p.shorten(aligned(p.bits))
	if c := t.child(n, n.place(p)); c != nil {
		fork := p.shorten(aligned(min(p.bits, p.commonBits(c.prefix()))))
		link := &t.slots.at(n.slots).nodes[n.place(p)%slotCount]
		child := *link
		*link = t.nodes.add(node{hi: fork.hi, lo: fork.lo, bits: fork.bits})
		n = t.nodes.at(*link)
		tr.add(n)
		t.attach(n, n.place(c.prefix()), child, largestFree(n.bits+stride, c))
		if fork == place {
			return tr
		}
	}
	made := t.nodes.add(node{hi: place.hi, lo: place.lo, bits: place.bits})
	t.attach(n, n.place(p), made, 0)
	tr.add(t.nodes.at(made))
	return tr
}

// aligned returns the length of the node that has the places of length bits.
func aligned(bits uint8) uint8 { return bits - bits%stride }

// attach puts a node into an empty slot of n; free is the length of the slot's largest free
// chunk.
func (t *trie) attach(n *node, slot uint8, child uint32, free uint8) {
	if n.below == 0 {
		n.slots = t.slots.add(slots{})
	}
	s := slot % slotCount
	slots := t.slots.at(n.slots)
	slots.nodes[s] = child
	slots.free[s] = free
	n.below |= 1 << s
}

// settle updates the last of the nodes around p, which has changed, and the nodes above it. It
// removes a node without anything taken and without a fork, and sums up free space again, up to a
// slot that has not changed.
func (t *trie) settle(p prefix, tr *trail) {
	placesChanged := true // n's blocked places may have changed, too
	for i := tr.len - 1; i > 0; i-- {
		n := tr.nodes[i]
		up := tr.nodes[i-1]
		if n.taken() == 0 && n.below == 0 {
			t.detach(up, up.place(p))
			placesChanged = true
			continue
		}
		slots := t.slots.at(up.slots)
		s := up.place(p) % slotCount
		if n.taken() == 0 && bits.OnesCount64(n.below) == 1 {
			n = t.skip(&slots.nodes[s])
		} else {
			t.sum(n, placesChanged)
		}
		old := slots.free[s]
		now := largestFree(up.bits+stride, n)
		if old == now {
			return
		}
		slots.free[s] = now
		placesChanged = old == 0
	}
	t.sum(&t.root, placesChanged)
}

// sum recomputes a node's summary of free space.
func (t *trie) sum(n *node, placesChanged bool) {
	if placesChanged {
		n.recomputeBlocked()
	}
	n.free = n.largest(t.slotsIn(n))
}

// slotsIn returns the slots of a node, nil if none has a node.
func (t *trie) slotsIn(n *node) *slots {
	if n.below == 0 {
		return nil
	}
	return t.slots.at(n.slots)
}

// detach removes the node in a slot of n. This node has no nodes below it.
func (t *trie) detach(n *node, slot uint8) {
	s := slot % slotCount
	slots := t.slots.at(n.slots)
	t.nodes.drop(slots.nodes[s])
	slots.nodes[s] = 0
	slots.free[s] = 0
	if n.below &^= 1 << s; n.below == 0 {
		t.slots.drop(n.slots)
		n.slots = 0
	}
}

// skip removes the node at the stored index, puts the only one below it there, and returns that.
func (t *trie) skip(link *uint32) *node {
	n := t.nodes.at(*link)
	child := t.slots.at(n.slots).nodes[bits.TrailingZeros64(n.below)]
	t.slots.drop(n.slots)
	t.nodes.drop(*link)
	*link = child
	return t.nodes.at(child)
}
