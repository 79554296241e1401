package ipalloc

// trie holds the taken prefixes of one family. Prefixes may lie inside one
// another. It is a binary trie without one-way nodes: a node is there only
// because its prefix is taken, or because two branches part at it, so that n
// taken prefixes need fewer than 2n nodes, however long they are. The zero trie
// is empty and ready to use. It must not be copied.
//
//	taken: 10.0.0.0/27, 10.0.0.64/26, and 10.0.0.96/32 inside the latter
//
//	            10.0.0.0/25             parts, free: /27
//	           /           \
//	    10.0.0.0/27     10.0.0.64/26    taken, free: none
//	        taken              \
//	                       10.0.0.96/32 taken
//
// Each node knows the largest aligned chunk that is wholly free below it, the
// summary that a buddy allocator keeps. Above, that is 10.0.0.32/27, which no
// node stands for: free space is where nodes are not, and is never listed.
type trie struct {
	root   node
	pairs  arena[[2]node]
	owners arena[Owner]
	// path is a chain of nodes from the root down: where the last call went.
	// The next one starts from there, as what follows one another mostly lies
	// close together: a search and its claim, a list in order.
	path []*node
}

// node is a place for a prefix. The zero node is a place without one. The
// places of two halves lie side by side, and fill a line of the cache.
type node struct {
	hi, lo   uint64 // the prefix's address
	halves   uint32 // places of the lower and upper half's topmost nodes; 0: no nodes there
	owner    uint32 // of the block with this very prefix; 0: no block
	reserved uint32 // how often this very prefix is reserved
	bits     uint8  // the prefix's length
	free     uint8  // length of the largest free chunk, or nothing
}

// nothing stands for "no free chunk": longer than any prefix.
const nothing = 255

func (n *node) prefix() prefix { return prefix{n.hi, n.lo, n.bits} }

// taken says whether somebody has this very prefix.
func (n *node) taken() bool { return n.owner != 0 || n.reserved != 0 }

// empty says whether there is no node: those without halves are taken.
func (n *node) empty() bool { return n == nil || n.halves == 0 && !n.taken() }

// in says whether there is a node, and it lies in p, or has p itself.
func (n *node) in(p prefix) bool { return !n.empty() && p.contains(n.prefix()) }

// half returns the place of the topmost node in a half of n; nil is an empty one.
func (t *trie) half(n *node, side uint8) *node {
	if n.halves == 0 {
		return nil
	}
	return &t.pairs.at(n.halves)[side]
}

// seek moves the path to the nodes that contain p and are larger, and returns
// the place after them, which may be empty. A node there has p itself, or lies
// in p, or parts from it.
func (t *trie) seek(p prefix) *node {
	depth := len(t.path)
	for depth > 0 && !t.path[depth-1].above(p) {
		depth--
	}
	t.path = t.path[:depth]
	n := &t.root
	if depth > 0 {
		last := t.path[depth-1]
		n = t.half(last, p.bit(last.bits))
	}
	for !n.empty() && n.above(p) {
		t.path = append(t.path, n)
		n = t.half(n, p.bit(n.bits))
	}
	return n
}

// above says whether n contains p and is larger.
func (n *node) above(p prefix) bool { return n.bits < p.bits && p.common(n.prefix()) >= n.bits }

// find returns the node of p, or nil.
func (t *trie) find(p prefix) *node {
	if n := t.seek(p); n.in(p) && n.bits == p.bits {
		return n
	}
	return nil
}

// hold takes p for a block of o. No block must have p.
func (t *trie) hold(p prefix, o Owner) {
	n := t.grow(p)
	n.owner = t.owners.add(o)
	t.settle(n)
}

// release undoes hold.
func (t *trie) release(p prefix) bool {
	n := t.find(p)
	if n == nil || n.owner == 0 {
		return false
	}
	t.owners.drop(n.owner)
	n.owner = 0
	t.settle(n)
	return true
}

func (t *trie) reserve(p prefix) {
	n := t.grow(p)
	n.reserved++
	t.settle(n)
}

func (t *trie) unreserve(p prefix) bool {
	n := t.find(p)
	if n == nil || n.reserved == 0 {
		return false
	}
	n.reserved--
	t.settle(n)
	return true
}

// grow returns the node of p, made if need be. The caller marks it as taken and
// then calls settle, as the summaries above it are not right any more.
//
//	nothing there     n lies in p     they part at a shorter prefix
//
//	      p                p                      fork
//	                        \                    /    \
//	                         n                  p      n
func (t *trie) grow(p prefix) *node {
	n := t.seek(p)
	if n == nil && len(t.path) > 0 {
		last := t.path[len(t.path)-1]
		last.halves = t.pairs.add([2]node{})
		n = t.half(last, p.bit(last.bits))
	}
	made := node{hi: p.hi, lo: p.lo, bits: p.bits}
	q := n.prefix()
	switch {
	case n.empty():
		*n = made
	case p == q:
	case p.contains(q):
		made.halves = t.pair(*n, q.bit(p.bits))
		*n = made
	default:
		f := p.shorten(p.common(q))
		*n = node{hi: f.hi, lo: f.lo, bits: f.bits, halves: t.pair(*n, q.bit(f.bits))}
		t.path = append(t.path, n)
		n = t.half(n, p.bit(f.bits))
		*n = made
	}
	return n
}

// pair returns new places for two halves, with n in one of them.
func (t *trie) pair(n node, side uint8) uint32 {
	var halves [2]node
	halves[side] = n
	return t.pairs.add(halves)
}

// settle puts n, which has changed, and the path above it in order: nodes
// without a purpose go, summaries are computed anew, up to one that stays the
// same.
func (t *trie) settle(n *node) {
	for depth := len(t.path); ; n = t.path[depth] {
		if t.prune(n) {
			t.path = t.path[:depth]
		} else if free := t.largest(n); free != n.free {
			n.free = free
		} else {
			return
		}
		if depth--; depth < 0 {
			return
		}
	}
}

// prune removes a node without a purpose, and puts the only one below it, if
// there is one, in its place. It says whether it did.
func (t *trie) prune(n *node) bool {
	if n.taken() {
		return false
	}
	var below node
	if n.halves != 0 {
		h := t.pairs.at(n.halves)
		switch {
		case h[0].empty():
			below = h[1]
		case h[1].empty():
			below = h[0]
		default:
			return false
		}
		t.pairs.drop(n.halves)
	}
	*n = below
	return true
}

// largest computes the summary of a node from those of its halves.
func (t *trie) largest(n *node) uint8 {
	if n.taken() {
		return nothing
	}
	return min(free(n.bits+1, t.half(n, 0)), free(n.bits+1, t.half(n, 1)))
}

// free returns the length of the largest free chunk in a prefix of length bits,
// in which n is the topmost node, or empty.
//
//	n is empty   n is smaller          n fills it
//
//	|      |     | n|  |      |        |  n   |
//	 bits               bits+1          n's summary
//
// In the middle the half without n is free, and nothing larger can be.
func free(bits uint8, n *node) uint8 {
	switch {
	case n.empty():
		return bits
	case n.bits == bits:
		return n.free
	}
	return bits + 1
}
