package state

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Free returns the number of blocks that can currently be claimed from cut.
func (l *Ledger) Free(cut ipalloc.Cut) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.space.Free(cut)
}

// Overlaps returns the blocks that share addresses with cidr, except cidr itself.
func (l *Ledger) Overlaps(cidr netip.Prefix) []ipalloc.Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.space.Overlapping(cidr)
}

// HeldIn returns the blocks that share addresses with cidr, including cidr itself.
func (l *Ledger) HeldIn(cidr netip.Prefix) []ipalloc.Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	return heldIn(l.space, cidr)
}

func heldIn(space *ipalloc.Space, cidr netip.Prefix) []ipalloc.Held {
	owned := space.Overlapping(cidr)
	if owner, ok := space.Owner(cidr); ok {
		owned = append(owned, ipalloc.Held{CIDR: cidr, Owner: owner})
	}
	return owned
}

// HolderOf returns a block that overlaps an excluded prefix, and its node, or "" if there
// is none.
func (l *Ledger) HolderOf(r exclude.Range) string {
	owned := l.HeldIn(r.CIDR)
	if len(owned) == 0 {
		return ""
	}
	note := fmt.Sprintf("in block %s of node %s", owned[0].CIDR, owned[0].Owner.Node)
	if r.Asked() {
		note += ", which keeps it"
	}
	return note
}

// isHeld reports whether a block or a claim covers all of p.
func isHeld(space *ipalloc.Space, p netip.Prefix) bool {
	if _, ok := space.Owner(p); ok {
		return true
	}
	return slices.ContainsFunc(space.Overlapping(p), func(h ipalloc.Held) bool { return ipalloc.Contains(h.CIDR, p) })
}

// heldBlock is a block in the ledger.
type heldBlock struct {
	crd.Block
	// inPool is its index among the blocks of its pool; -1: it is gone.
	inPool int
	// used is the number of its addresses that the agent reports in use.
	used int64
	// fenced is its version when this process changed its CiliumNode while it cooled down, so that
	// an older patch of that conflicts. A block that has returned to service may be published again.
	fenced string
}

// heldBlocks are the blocks in the ledger.
type heldBlocks struct {
	*core

	byCIDR map[netip.Prefix]*heldBlock
	// byNode are the blocks of each node, sorted by address; byPool are the blocks of each pool.
	byNode, byPool map[string][]*heldBlock
	// used counts the addresses of each pool and family that agents report in use.
	used map[string][2]int64
	// moving counts, by pool and node, the blocks that drain because the pool no longer selects the
	// node.
	moving map[string]map[string]int
}

// index stores a block and replaces one with the same CIDR. It reports whether the node held no
// such block of that pool.
func (h *heldBlocks) index(b crd.Block) (isNew bool) {
	if block, ok := h.byCIDR[b.CIDR]; ok && block.Pool == b.Pool && block.Node == b.Node {
		h.countMoving(block.Block, -1)
		block.Block = b
		h.countMoving(b, 1)
		return false
	}
	h.unindex(b.CIDR)
	block := &heldBlock{Block: b, inPool: len(h.byPool[b.Pool])}
	h.byCIDR[b.CIDR] = block
	h.byPool[b.Pool] = append(h.byPool[b.Pool], block)
	i, _ := slices.BinarySearchFunc(h.byNode[b.Node], b.CIDR, (*heldBlock).compare)
	h.byNode[b.Node] = slices.Insert(h.byNode[b.Node], i, block)
	h.countMoving(b, 1)
	return true
}

func (b *heldBlock) compare(cidr netip.Prefix) int { return b.CIDR.Compare(cidr) }

// unindex removes the block with that CIDR, if any.
func (h *heldBlocks) unindex(cidr netip.Prefix) {
	block, ok := h.byCIDR[cidr]
	if !ok {
		return
	}
	h.countMoving(block.Block, -1)
	h.setUsed(block, 0)
	delete(h.byCIDR, cidr)
	pool := h.byPool[block.Pool]
	last := pool[len(pool)-1]
	pool[block.inPool] = last
	last.inPool = block.inPool
	pool[len(pool)-1] = nil
	block.inPool = -1
	h.byPool[block.Pool] = pool[:len(pool)-1]
	if len(pool) == 1 {
		delete(h.byPool, block.Pool)
	}
	i, _ := slices.BinarySearchFunc(h.byNode[block.Node], cidr, (*heldBlock).compare)
	h.byNode[block.Node] = slices.Delete(h.byNode[block.Node], i, i+1)
	if len(h.byNode[block.Node]) == 0 {
		delete(h.byNode, block.Node)
	}
}

// setUsed sets the number of a block's addresses in use.
func (h *heldBlocks) setUsed(block *heldBlock, n int64) {
	if n == block.used {
		return
	}
	sum := h.used[block.Pool]
	sum[ipalloc.FamilyOf(block.CIDR.Addr())] += n - block.used
	block.used = n
	h.used[block.Pool] = sum
	if sum == [2]int64{} {
		delete(h.used, block.Pool)
	}
	if !slices.Contains(h.usedIn, block.Pool) {
		h.usedIn = append(h.usedIn, block.Pool)
	}
}

// Used returns the numbers of addresses of a pool, by family, that agents report in use. Agents that
// are assigned whole blocks report none.
func (l *Ledger) Used(pool string) [2]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blocks.used[pool]
}

// countMoving adds a block that has come (1) or gone (-1) to moving.
func (h *heldBlocks) countMoving(b crd.Block, delta int) {
	if b.Phase != ipalloc.Draining || b.Reason != expand.NodeUnselected {
		return
	}
	nodes := h.moving[b.Pool]
	if nodes == nil {
		nodes = map[string]int{}
		h.moving[b.Pool] = nodes
	}
	if nodes[b.Node] += delta; nodes[b.Node] == 0 {
		delete(nodes, b.Node)
	}
	if len(nodes) == 0 {
		delete(h.moving, b.Pool)
	}
}

// MovingOff returns the number of nodes that move off a pool because it no longer selects them.
func (l *Ledger) MovingOff(pool string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.blocks.moving[pool])
}

// MovesOff reports whether a node moves off a pool because it no longer selects the node.
func (l *Ledger) MovesOff(node, pool string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blocks.moving[pool][node] > 0
}

// PoolBlocks iterates over the blocks that a pool has when the iteration begins, in no particular
// order. It yields each in its state when it is read, and skips blocks deleted meanwhile. It locks
// the ledger for a few blocks at a time and not while it yields, so the caller may call the ledger.
func (l *Ledger) PoolBlocks(pool string) iter.Seq[crd.Block] {
	return func(yield func(crd.Block) bool) {
		l.mu.Lock()
		held := slices.Clone(l.blocks.byPool[pool])
		l.mu.Unlock()
		blocks := make([]crd.Block, 0, min(len(held), partSize))
		for part := range slices.Chunk(held, partSize) {
			blocks = blocks[:0]
			inParts(&l.mu, part, func(block *heldBlock) {
				if block.inPool >= 0 {
					blocks = append(blocks, block.Block)
				}
			})
			for _, b := range blocks {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// Block returns the block with that CIDR.
func (l *Ledger) Block(cidr netip.Prefix) (crd.Block, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if block, ok := l.blocks.byCIDR[cidr]; ok {
		return block.Block, true
	}
	return crd.Block{}, false
}

// NodeBlocks returns the blocks that a node holds, sorted by address.
func (l *Ledger) NodeBlocks(node string) []crd.Block {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]crd.Block, 0, len(l.blocks.byNode[node]))
	for _, block := range l.blocks.byNode[node] {
		out = append(out, block.Block)
	}
	return out
}

// CIDRs returns the CIDRs of all blocks, in no particular order.
func (l *Ledger) CIDRs() []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.blocks.byCIDR))
}

// Size returns the number of blocks of a pool.
func (l *Ledger) Size(pool string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.blocks.byPool[pool])
}

// NotRunning returns the nodes with a block of a pool and an agent that does not run a family,
// sorted. It walks the blocks of the pool.
func (l *Ledger) NotRunning(f ipalloc.Family, pool string) []string {
	l.mu.Lock()
	ranges := l.Exclusions.withQuota
	l.mu.Unlock()
	var nodes, out []string
	var lacking []*ciliumnode.View
	for b := range l.PoolBlocks(pool) {
		nodes = append(nodes, b.Node)
	}
	inParts(&l.mu, nodes, func(node string) {
		if cn := l.nodes.current(node); cn.FamilyDisabled(f) {
			lacking = append(lacking, cn)
		}
	})
	inPool := func(addr netip.Addr) bool { return len(heldIn(ranges, ipalloc.Single(addr))) > 0 }
	for _, cn := range lacking {
		if cn.WithConfigured(inPool).FamilyDisabled(f) {
			out = append(out, cn.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// HeldElsewhere returns the blocks of other nodes that share an address with any prefix in
// named.
func (l *Ledger) HeldElsewhere(node string, named []netip.Prefix) []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []netip.Prefix
	for _, p := range named {
		if b, ok := l.blocks.byCIDR[p]; ok && b.Node != node {
			out = append(out, p)
		}
		for _, held := range l.space.Overlapping(p) {
			if held.Owner.Node != node && !slices.Contains(out, held.CIDR) {
				out = append(out, held.CIDR)
			}
		}
	}
	return out
}
