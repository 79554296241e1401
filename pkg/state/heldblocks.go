package state

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// heldBlock is a block in the ledger.
type heldBlock struct {
	crd.Block
	// inPool is its index among the blocks of its pool; -1: it is gone.
	inPool int
	// fenced is its version when this process changed its CiliumNode while it cooled down, so that
	// an older patch of that conflicts. A block that has returned to service may be published again.
	fenced string
}

// heldBlocks are the blocks in the ledger.
type heldBlocks struct {
	*core

	blocks map[netip.Prefix]*heldBlock
	// byNode are the blocks of each node, sorted by address; byPool are the blocks of each pool.
	byNode, byPool map[string][]*heldBlock
	// moving counts, by pool and node, the blocks that drain because the pool no longer selects the
	// node.
	moving map[string]map[string]int
}

// index stores a block and replaces one with the same CIDR. It reports whether the node held no
// such block of that pool.
func (h *heldBlocks) index(b crd.Block) (isNew bool) {
	if held, ok := h.blocks[b.CIDR]; ok && held.Pool == b.Pool && held.Node == b.Node {
		h.countMoving(held.Block, -1)
		held.Block = b
		h.countMoving(b, 1)
		return false
	}
	h.unindex(b.CIDR)
	held := &heldBlock{Block: b, inPool: len(h.byPool[b.Pool])}
	h.blocks[b.CIDR] = held
	h.byPool[b.Pool] = append(h.byPool[b.Pool], held)
	i, _ := slices.BinarySearchFunc(h.byNode[b.Node], b.CIDR, (*heldBlock).compare)
	h.byNode[b.Node] = slices.Insert(h.byNode[b.Node], i, held)
	h.countMoving(b, 1)
	return true
}

func (b *heldBlock) compare(cidr netip.Prefix) int { return b.CIDR.Compare(cidr) }

// unindex removes the block with that CIDR, if any.
func (h *heldBlocks) unindex(cidr netip.Prefix) {
	held, ok := h.blocks[cidr]
	if !ok {
		return
	}
	h.countMoving(held.Block, -1)
	delete(h.blocks, cidr)
	pool := h.byPool[held.Pool]
	last := pool[len(pool)-1]
	pool[held.inPool], last.inPool = last, held.inPool
	pool[len(pool)-1], held.inPool = nil, -1
	h.byPool[held.Pool] = pool[:len(pool)-1]
	if len(pool) == 1 {
		delete(h.byPool, held.Pool)
	}
	i, _ := slices.BinarySearchFunc(h.byNode[held.Node], cidr, (*heldBlock).compare)
	h.byNode[held.Node] = slices.Delete(h.byNode[held.Node], i, i+1)
	if len(h.byNode[held.Node]) == 0 {
		delete(h.byNode, held.Node)
	}
}

// countMoving adds a block that has come (1) or gone (-1) to moving.
func (h *heldBlocks) countMoving(b crd.Block, by int) {
	if b.Phase != ipalloc.Draining || b.Reason != expand.NodeUnselected {
		return
	}
	nodes := h.moving[b.Pool]
	if nodes == nil {
		nodes = map[string]int{}
		h.moving[b.Pool] = nodes
	}
	if nodes[b.Node] += by; nodes[b.Node] == 0 {
		delete(nodes, b.Node)
	}
	if len(nodes) == 0 {
		delete(h.moving, b.Pool)
	}
}

// MovingOff returns the number of nodes that move off a pool because it no longer selects them.
func (h *heldBlocks) MovingOff(pool string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.moving[pool])
}

// MovesOff reports whether a node moves off a pool because it no longer selects the node.
func (h *heldBlocks) MovesOff(node, pool string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moving[pool][node] > 0
}

// PoolBlocks iterates over the blocks that a pool has when the iteration begins, in no particular
// order. It yields each in its state when it is read, and skips blocks deleted meanwhile. It locks
// the ledger for a few blocks at a time and not while it yields, so the caller may call the ledger.
func (h *heldBlocks) PoolBlocks(pool string) iter.Seq[crd.Block] {
	return func(yield func(crd.Block) bool) {
		h.mu.Lock()
		all := slices.Clone(h.byPool[pool])
		h.mu.Unlock()
		var blocks [partSize]crd.Block
		for part := range slices.Chunk(all, partSize) {
			for i := range h.read(part, &blocks) {
				if !yield(blocks[i]) {
					return
				}
			}
		}
	}
}

// read copies the blocks of held that are not gone, and returns their number.
func (h *heldBlocks) read(held []*heldBlock, blocks *[partSize]crd.Block) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range held {
		if b.inPool >= 0 {
			blocks[n] = b.Block
			n++
		}
	}
	return n
}

// Block returns the block with that CIDR.
func (h *heldBlocks) Block(cidr netip.Prefix) (crd.Block, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held, ok := h.blocks[cidr]; ok {
		return held.Block, true
	}
	return crd.Block{}, false
}

// NodeBlocks returns the blocks that a node holds, sorted by address.
func (h *heldBlocks) NodeBlocks(node string) []crd.Block {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]crd.Block, 0, len(h.byNode[node]))
	for _, held := range h.byNode[node] {
		out = append(out, held.Block)
	}
	return out
}

// CIDRs returns the CIDRs of all blocks, in no particular order.
func (h *heldBlocks) CIDRs() []netip.Prefix {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.blocks))
}

// Size returns the number of blocks of a pool.
func (h *heldBlocks) Size(pool string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byPool[pool])
}

// partSize is the number of records read under a lock at once: a few microseconds.
const partSize = 64

// inParts calls do for each of keys, and holds the lock for partSize of them at a time.
func inParts[K any](lock sync.Locker, keys []K, do func(K)) {
	for part := range slices.Chunk(keys, partSize) {
		lock.Lock()
		for _, key := range part {
			do(key)
		}
		lock.Unlock()
	}
}
