package state

import (
	"context"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// ReadyLedger knows of these blocks, and that there are no others.
func ReadyLedger(blocks ...crd.Block) *Ledger {
	l := NewLedger()
	for _, b := range blocks {
		l.Upsert(b)
	}
	l.SetReady()
	return l
}

// Ledger is what this process knows of blocks: those the watch has shown, and
// its own writes that the watch has yet to show. It is safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex
	space  *ipalloc.Space
	ready  chan struct{}
	blocks map[netip.Prefix]crd.Block
	// byNode and byPool are the blocks of each node and of each pool.
	byNode, byPool map[string]map[netip.Prefix]struct{}
	// unknown are claims whose write was sent and not answered, by node. They
	// stay taken, and the node's next claim tries the same block again, so that
	// one need ends in one block.
	unknown map[string][]netip.Prefix
	// shown are the blocks held that the watch has shown, and gone those that are
	// deleted, lest a late answer, or a watch that lags behind, bring one back.
	shown, gone map[types.UID]bool
	shownNow    chan struct{}

	ciliumNodes ciliumNodes
	// excluded are the addresses of nodes and Services.
	excluded exclude.Set

	// Changed is told what came free, and what was taken other than by a claim,
	// once the ledger has taken it in; nil: nobody is. It may ask the ledger.
	Changed      func(freed, taken []netip.Prefix)
	freed, taken []netip.Prefix // since it was told
}

// NewLedger is a ledger that has read nothing yet.
func NewLedger() *Ledger {
	return &Ledger{
		space:       ipalloc.NewSpace(),
		ready:       make(chan struct{}),
		blocks:      map[netip.Prefix]crd.Block{},
		byNode:      map[string]map[netip.Prefix]struct{}{},
		byPool:      map[string]map[netip.Prefix]struct{}{},
		unknown:     map[string][]netip.Prefix{},
		shown:       map[types.UID]bool{},
		gone:        map[types.UID]bool{},
		shownNow:    make(chan struct{}),
		ciliumNodes: newCiliumNodes(),
	}
}

// unlock ends a change of the ledger. Whatever came free by it is told here, and in
// no other place, so that no node that waits for it is missed.
func (l *Ledger) unlock() {
	freed, taken := l.freed, l.taken
	l.freed, l.taken = nil, nil
	l.mu.Unlock()
	if l.Changed != nil && len(freed)+len(taken) > 0 {
		l.Changed(freed, taken)
	}
}

// release lets go of what a block or a claim holds.
func (l *Ledger) release(cidr netip.Prefix) {
	if l.space.Release(cidr) {
		l.freed = append(l.freed, cidr)
	}
}

// SetReady says that all blocks and all CiliumNodes have been read.
func (l *Ledger) SetReady() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.space.Ready() {
		l.space.SetReady()
		close(l.ready)
	}
}

// Ready reports whether SetReady has been called.
func (l *Ledger) Ready() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.space.Ready()
}

// WaitReady waits for SetReady.
func (l *Ledger) WaitReady(ctx context.Context) error {
	select {
	case <-l.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Upsert takes in a block that the watch shows.
func (l *Ledger) Upsert(b crd.Block) {
	l.mu.Lock()
	defer l.unlock()
	if l.gone[b.UID] {
		return
	}
	l.set(b)
	if !l.shown[b.UID] {
		l.shown[b.UID] = true
		l.notifyShown()
	}
}

// maxGone bounds what is remembered of deleted blocks. Late news comes within
// seconds; by the time so many blocks are gone, it has long come.
const maxGone = 1 << 16

// Remove takes in a block that the watch shows to be deleted.
func (l *Ledger) Remove(b crd.Block) {
	l.mu.Lock()
	defer l.unlock()
	if held, ok := l.blocks[b.CIDR]; ok && held.UID == b.UID {
		l.orphan(held)
		l.drop(held)
	}
	l.bury(b)
}

// AssumeDeleted takes in that a block turned out to be deleted, or that this process
// has deleted it, and that its object is gone with that. What the watch may yet
// show of it is old.
func (l *Ledger) AssumeDeleted(b crd.Block) {
	l.mu.Lock()
	defer l.unlock()
	if held, ok := l.blocks[b.CIDR]; ok && held.UID == b.UID {
		l.drop(held)
	}
	l.bury(b)
}

func (l *Ledger) bury(b crd.Block) {
	if len(l.gone) >= maxGone {
		clear(l.gone)
	}
	l.gone[b.UID] = true
	delete(l.ciliumNodes.fenced, b.UID)
	delete(l.shown, b.UID)
	l.notifyShown()
}

// Assume takes in a block as the API server has just answered it, before the
// watch shows it.
func (l *Ledger) Assume(b crd.Block) {
	l.mu.Lock()
	defer l.unlock()
	l.settle(b.CIDR)
	if l.gone[b.UID] {
		l.unhold(b.Node, b.CIDR)
		return
	}
	l.set(b)
}

func (l *Ledger) set(b crd.Block) {
	if held, ok := l.blocks[b.CIDR]; ok {
		if !reached(b.ResourceVersion, held.ResourceVersion) {
			return
		}
		if held.UID != b.UID {
			l.drop(held)
		}
		l.unpool(held)
	}
	l.blocks[b.CIDR] = b
	if l.byPool[b.Pool] == nil {
		l.byPool[b.Pool] = map[netip.Prefix]struct{}{}
	}
	l.byPool[b.Pool][b.CIDR] = struct{}{}
	if l.byNode[b.Node] == nil {
		l.byNode[b.Node] = map[netip.Prefix]struct{}{}
	}
	l.byNode[b.Node][b.CIDR] = struct{}{}
	owner := ipalloc.Owner{Pool: b.Pool, Node: b.Node, Phase: b.Phase}
	if o, held := l.space.Owner(b.CIDR); held && (o.Pool != owner.Pool || o.Node != owner.Node) {
		l.space.Release(b.CIDR) // a claim of ours that somebody else won
	}
	// An overlap is no reason to forget a block: Overlaps tells it later.
	_ = l.space.Restore(ipalloc.Held{CIDR: b.CIDR, Owner: owner})
}

// settle ends the doubt about a claim: the API server has spoken.
func (l *Ledger) settle(cidr netip.Prefix) {
	for node, claims := range l.unknown {
		if i := slices.Index(claims, cidr); i >= 0 {
			l.forgetUnknown(node, i)
		}
	}
}

func (l *Ledger) forgetUnknown(node string, i int) {
	l.unknown[node] = slices.Delete(l.unknown[node], i, i+1)
	if len(l.unknown[node]) == 0 {
		delete(l.unknown, node)
	}
}

func (l *Ledger) drop(b crd.Block) {
	delete(l.blocks, b.CIDR)
	delete(l.byNode[b.Node], b.CIDR)
	if len(l.byNode[b.Node]) == 0 {
		delete(l.byNode, b.Node)
	}
	delete(l.shown, b.UID)
	l.unpool(b)
	l.release(b.CIDR)
	// What the node's CiliumNode names of it is no longer covered.
	l.setForeign(b.Node, l.foreignOf(b.Node))
}

func (l *Ledger) unpool(b crd.Block) {
	delete(l.byPool[b.Pool], b.CIDR)
	if len(l.byPool[b.Pool]) == 0 {
		delete(l.byPool, b.Pool)
	}
}

func (l *Ledger) notifyShown() {
	close(l.shownNow)
	l.shownNow = make(chan struct{})
}

// WaitShown waits until the watch has shown a block, and with it all that were
// created before.
func (l *Ledger) WaitShown(ctx context.Context, uid types.UID) error {
	for {
		l.mu.Lock()
		shown, next := l.shown[uid] || l.gone[uid], l.shownNow
		l.mu.Unlock()
		if shown {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Shown reports whether the watch has shown a block.
func (l *Ledger) Shown(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown[uid]
}

// Block is the block with that CIDR.
func (l *Ledger) Block(cidr netip.Prefix) (crd.Block, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.blocks[cidr]
	return b, ok
}

// NodeBlocks are the blocks a node holds, sorted by address.
func (l *Ledger) NodeBlocks(node string) []crd.Block {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]crd.Block, 0, len(l.byNode[node]))
	for cidr := range l.byNode[node] {
		out = append(out, l.blocks[cidr])
	}
	slices.SortFunc(out, func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	return out
}

// Nodes are the names of all nodes that hold a block or are in doubt about one.
func (l *Ledger) Nodes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := slices.Collect(maps.Keys(l.byNode))
	for node := range l.unknown {
		if _, there := l.byNode[node]; !there {
			names = append(names, node)
		}
	}
	return names
}

// Holds reports whether the pool holds a block within cidr.
func (l *Ledger) Holds(pool string, within netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o, ok := l.space.Owner(within); ok && o.Pool == pool {
		return true
	}
	return slices.ContainsFunc(l.space.Overlapping(within), func(h ipalloc.Held) bool { return h.Owner.Pool == pool })
}

// PoolBlocks are the blocks cut from a pool, in no order. The ledger is held
// while they are walked: nothing may be asked of it meanwhile.
func (l *Ledger) PoolBlocks(pool string) iter.Seq[crd.Block] {
	return func(yield func(crd.Block) bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for cidr := range l.byPool[pool] {
			if !yield(l.blocks[cidr]) {
				return
			}
		}
	}
}

// Free is how many blocks could be claimed from cut now.
func (l *Ledger) Free(cut ipalloc.Cut) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.space.Free(cut)
}

// Overlaps are the blocks that share addresses with cidr, but for cidr itself.
func (l *Ledger) Overlaps(cidr netip.Prefix) []ipalloc.Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.space.Overlapping(cidr)
}
