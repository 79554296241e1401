package ipalloc

// trie holds the taken prefixes of one family. Prefixes may lie inside one
// another. It is a binary trie without one-way nodes: a node is there only
// because its prefix is taken, or because two branches part at it, so that n
// taken prefixes need fewer than 2n nodes, however long they are. The zero trie
// is empty and ready to use.
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
	root   uint32
	nodes  arena[node]
	owners arena[Owner]
}

type node struct {
	hi, lo   uint64    // the prefix's address
	child    [2]uint32 // the lower and upper half's topmost nodes; 0: none
	owner    uint32    // of the block with this very prefix; 0: no block
	reserved uint32    // how often this very prefix is reserved
	bits     uint8     // the prefix's length
	free     uint8     // length of the largest free chunk, or nothing
}

// nothing stands for "no free chunk": longer than any prefix.
const nothing = 255

func (n *node) prefix() prefix { return prefix{n.hi, n.lo, n.bits} }

// taken says whether somebody has this very prefix.
func (n *node) taken() bool { return n.owner != 0 || n.reserved != 0 }

// find returns the node of p, or 0.
func (t *trie) find(p prefix) uint32 {
	n := t.root
	for n != 0 {
		at := t.nodes.at(n)
		if !at.prefix().contains(p) {
			return 0
		}
		if at.bits == p.bits {
			return n
		}
		n = at.child[p.bit(at.bits)]
	}
	return 0
}

// hold takes p for a block of o. No block must have p.
func (t *trie) hold(p prefix, o Owner) {
	n := t.grow(p)
	t.nodes.at(n).owner = t.owners.add(o)
	t.root = t.settle(t.root, p)
}

// release undoes hold.
func (t *trie) release(p prefix) bool {
	n := t.find(p)
	if n == 0 || t.nodes.at(n).owner == 0 {
		return false
	}
	t.owners.drop(t.nodes.at(n).owner)
	t.nodes.at(n).owner = 0
	t.root = t.settle(t.root, p)
	return true
}

func (t *trie) reserve(p prefix) {
	n := t.grow(p)
	t.nodes.at(n).reserved++
	t.root = t.settle(t.root, p)
}

func (t *trie) unreserve(p prefix) bool {
	n := t.find(p)
	if n == 0 || t.nodes.at(n).reserved == 0 {
		return false
	}
	t.nodes.at(n).reserved--
	t.root = t.settle(t.root, p)
	return true
}

// grow returns the node of p, made if need be. The caller marks it as taken and
// then calls settle, as the summaries above it are not right any more.
func (t *trie) grow(p prefix) uint32 {
	parent, n := uint32(0), t.root
	for n != 0 {
		at := t.nodes.at(n)
		if !at.prefix().contains(p) {
			break
		}
		if at.bits == p.bits {
			return n
		}
		parent, n = n, at.child[p.bit(at.bits)]
	}
	made := t.nodes.add(node{hi: p.hi, lo: p.lo, bits: p.bits})
	top := t.join(made, n)
	if parent == 0 {
		t.root = top
	} else {
		up := t.nodes.at(parent)
		up.child[p.bit(up.bits)] = top
	}
	return made
}

// join puts the new node made where the subtree n (or nothing) stood, and
// returns the topmost node.
//
//	n is 0      n lies in made      they part at a shorter prefix
//
//	 made           made                      fork
//	                  \                      /    \
//	                   n                  made     n
func (t *trie) join(made, n uint32) uint32 {
	if n == 0 {
		return made
	}
	p, q := t.nodes.at(made).prefix(), t.nodes.at(n).prefix()
	if p.contains(q) {
		t.nodes.at(made).child[q.bit(p.bits)] = n
		return made
	}
	f := p.shorten(p.common(q))
	fork := node{hi: f.hi, lo: f.lo, bits: f.bits}
	fork.child[p.bit(f.bits)] = made
	fork.child[q.bit(f.bits)] = n
	return t.nodes.add(fork)
}

// settle puts the path from n down to p in order after p's node has changed:
// nodes without a purpose go, summaries are computed anew. It returns what now
// stands where n stood.
func (t *trie) settle(n uint32, p prefix) uint32 {
	at := t.nodes.at(n) // stays good: nothing is added below
	if at.bits < p.bits {
		side := p.bit(at.bits)
		at.child[side] = t.settle(at.child[side], p)
	}
	if !at.taken() && (at.child[0] == 0 || at.child[1] == 0) {
		only := max(at.child[0], at.child[1])
		t.nodes.drop(n)
		return only
	}
	at.free = t.largest(at)
	return n
}

// largest computes the summary of a node from those of its children.
func (t *trie) largest(at *node) uint8 {
	if at.taken() {
		return nothing
	}
	return min(t.free(at.bits+1, at.child[0]), t.free(at.bits+1, at.child[1]))
}

// free returns the length of the largest free chunk in a prefix of length bits,
// in which n is the topmost node (0: none).
//
//	n is 0       n is smaller          n fills it
//
//	|      |     | n|  |      |        |  n   |
//	 bits               bits+1          n's summary
//
// In the middle the half without n is free, and nothing larger can be.
func (t *trie) free(bits uint8, n uint32) uint8 {
	if n == 0 {
		return bits
	}
	if at := t.nodes.at(n); at.bits == bits {
		return at.free
	}
	return bits + 1
}
