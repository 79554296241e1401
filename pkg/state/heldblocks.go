package state

import (
	"iter"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// heldBlock is a block in the ledger.
type heldBlock struct {
	crd.Block
	// inPool is its index among the blocks of its pool; -1: it is gone.
	inPool int
}

// index stores a block and replaces one with the same CIDR. It reports whether the node held no
// such block of that pool.
func (l *Ledger) index(b crd.Block) (isNew bool) {
	if held, ok := l.blocks[b.CIDR]; ok && held.Pool == b.Pool && held.Node == b.Node {
		held.Block = b
		return false
	}
	l.unindex(b.CIDR)
	held := &heldBlock{b, len(l.byPool[b.Pool])}
	l.blocks[b.CIDR] = held
	l.byPool[b.Pool] = append(l.byPool[b.Pool], held)
	if !l.hasOf(b.Node, b.Pool) {
		l.nodesOf[b.Pool]++
	}
	i, _ := slices.BinarySearchFunc(l.byNode[b.Node], b.CIDR, (*heldBlock).compare)
	l.byNode[b.Node] = slices.Insert(l.byNode[b.Node], i, held)
	return true
}

func (h *heldBlock) compare(cidr netip.Prefix) int { return h.CIDR.Compare(cidr) }

// unindex removes the block with that CIDR, if any.
func (l *Ledger) unindex(cidr netip.Prefix) {
	held, ok := l.blocks[cidr]
	if !ok {
		return
	}
	delete(l.blocks, cidr)
	pool := l.byPool[held.Pool]
	last := pool[len(pool)-1]
	pool[held.inPool], last.inPool = last, held.inPool
	pool[len(pool)-1], held.inPool = nil, -1
	l.byPool[held.Pool] = pool[:len(pool)-1]
	if len(pool) == 1 {
		delete(l.byPool, held.Pool)
	}
	i, _ := slices.BinarySearchFunc(l.byNode[held.Node], cidr, (*heldBlock).compare)
	l.byNode[held.Node] = slices.Delete(l.byNode[held.Node], i, i+1)
	if len(l.byNode[held.Node]) == 0 {
		delete(l.byNode, held.Node)
	}
	if l.hasOf(held.Node, held.Pool) {
		return
	}
	if l.nodesOf[held.Pool]--; l.nodesOf[held.Pool] == 0 {
		delete(l.nodesOf, held.Pool)
	}
}

// hasOf reports whether a node has a block of a pool.
func (l *Ledger) hasOf(node, pool string) bool {
	return slices.ContainsFunc(l.byNode[node], func(h *heldBlock) bool { return h.Pool == pool })
}

// PoolBlocks iterates over the blocks that a pool has when the iteration begins, in no
// particular order. It yields each in its state when it is read, and skips those that are
// deleted meanwhile. It locks the ledger for a few blocks at a time and not while it
// yields, so the caller may call the ledger.
func (l *Ledger) PoolBlocks(pool string) iter.Seq[crd.Block] {
	return func(yield func(crd.Block) bool) {
		l.mu.Lock()
		all := slices.Clone(l.byPool[pool])
		l.mu.Unlock()
		var blocks [partSize]crd.Block
		for part := range slices.Chunk(all, partSize) {
			for i := range l.read(part, &blocks) {
				if !yield(blocks[i]) {
					return
				}
			}
		}
	}
}

// read copies the blocks of held that are not gone, and returns how many it copied.
func (l *Ledger) read(held []*heldBlock, blocks *[partSize]crd.Block) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range held {
		if h.inPool >= 0 {
			blocks[n] = h.Block
			n++
		}
	}
	return n
}

// partSize is how many records are read under a lock at once: a few microseconds.
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
