package state

import (
	"iter"
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
}

// index stores a block and replaces one with the same CIDR. It reports whether the node held no
// such block of that pool.
func (l *Ledger) index(b crd.Block) (isNew bool) {
	if held, ok := l.blocks[b.CIDR]; ok && held.Pool == b.Pool && held.Node == b.Node {
		l.count(b.Node, b.Pool, -1)
		held.Block = b
		l.count(b.Node, b.Pool, 1)
		return false
	}
	l.unindex(b.CIDR)
	l.count(b.Node, b.Pool, -1)
	held := &heldBlock{b, len(l.byPool[b.Pool])}
	l.blocks[b.CIDR] = held
	l.byPool[b.Pool] = append(l.byPool[b.Pool], held)
	i, _ := slices.BinarySearchFunc(l.byNode[b.Node], b.CIDR, (*heldBlock).compare)
	l.byNode[b.Node] = slices.Insert(l.byNode[b.Node], i, held)
	l.count(b.Node, b.Pool, 1)
	return true
}

func (h *heldBlock) compare(cidr netip.Prefix) int { return h.CIDR.Compare(cidr) }

// unindex removes the block with that CIDR, if any.
func (l *Ledger) unindex(cidr netip.Prefix) {
	held, ok := l.blocks[cidr]
	if !ok {
		return
	}
	l.count(held.Node, held.Pool, -1)
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
	l.count(held.Node, held.Pool, 1)
}

// poolNodes is how many nodes have a block of a pool, and how many of these move off it.
type poolNodes struct{ all, moving int }

// count keeps nodesOf, before the blocks that a node has of a pool change and after.
func (l *Ledger) count(node, pool string, by int) {
	n := l.nodesOf[pool]
	has, moves := l.hasOf(node, pool)
	if has {
		n.all += by
	}
	if moves {
		n.moving += by
	}
	if l.nodesOf[pool] = n; n == (poolNodes{}) {
		delete(l.nodesOf, pool)
	}
}

// hasOf reports whether a node has a block of a pool, and whether it drains one because the
// pool no longer selects it.
func (l *Ledger) hasOf(node, pool string) (has, moves bool) {
	for _, h := range l.byNode[node] {
		if h.Pool == pool {
			has, moves = true, moves || h.Phase == ipalloc.Draining && h.Reason == expand.NodeUnselected
		}
	}
	return has, moves
}

// MovingOff returns how many nodes move off a pool because it no longer selects them.
func (l *Ledger) MovingOff(pool string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodesOf[pool].moving
}

// MovesOff reports whether a node moves off a pool because it no longer selects the node.
func (l *Ledger) MovesOff(node, pool string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, moves := l.hasOf(node, pool)
	return moves
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
