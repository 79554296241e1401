package state

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// ReadyLedger returns a ledger of exactly these blocks that is ready to use.
func ReadyLedger(blocks ...crd.Block) *Ledger {
	l := NewLedger()
	for _, b := range blocks {
		l.Upsert(b)
	}
	l.SetReady()
	return l
}

// Ledger is what this process knows about blocks: those that the watch has delivered, and
// its own writes that the watch has not delivered yet. It is safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex
	space  *ipalloc.Space
	ready  chan struct{}
	blocks map[netip.Prefix]*heldBlock
	// byNode are the blocks of each node, sorted by address; byPool are those of each pool.
	byNode, byPool map[string][]*heldBlock
	// nodesOf counts the nodes with a block of each pool.
	nodesOf map[string]poolNodes
	// unknown are the claims, by node, whose write was sent but not answered. They stay
	// taken, and the node's next claim retries the same block, so that one need results in
	// one block. unknownOf are the nodes of each claim.
	unknown   map[string][]netip.Prefix
	unknownOf map[netip.Prefix][]string
	// claims are the CIDRs, by node, that are reserved for blocks that do not exist yet;
	// turnover is how many blocks of each pool have been claimed or freed.
	claims   map[string][]netip.Prefix
	turnover map[string]uint64
	// closed are the last blocks of CIDRs that are free again and that an agent had closed:
	// they would bring that node no address while this agent runs. closedFor are the CIDRs
	// by node.
	closed    map[netip.Prefix]crd.Block
	closedFor map[string][]netip.Prefix
	// withheld are the ranges reserved for other reasons than a CiliumNode.
	withheld *ipalloc.Space
	// refused are the CIDRs of blocks that the API server has refused to create.
	refused map[netip.Prefix]bool
	// shown are the held blocks that the watch has delivered, and gone are the deleted
	// ones, so that neither a late response nor a lagging watch restores one.
	shown, gone map[types.UID]bool
	// awaited are closed when it is time for WaitShown to look for a block again.
	awaited map[types.UID]chan struct{}

	ciliumNodes ciliumNodes
	// excluded are the addresses of nodes and Services.
	excluded exclude.Set
	// offered are the ranges of CiliumLoadBalancerIPPools, by name, and shared those that are
	// too large a part of a pool to be excluded. cuts are the ranges of all pools.
	offered map[string][]netip.Prefix
	shared  exclude.Set
	cuts    []ipalloc.Cut

	// Changed, if set, receives the freed CIDRs, and those taken in other ways than by a
	// claim, after the ledger has recorded them. It may call the ledger.
	Changed      func(freed, taken []netip.Prefix)
	freed, taken []netip.Prefix // since the last call of Changed
}

// NewLedger returns an empty ledger that is not ready yet.
func NewLedger() *Ledger {
	return &Ledger{
		space:       ipalloc.NewSpace(),
		ready:       make(chan struct{}),
		blocks:      map[netip.Prefix]*heldBlock{},
		byNode:      map[string][]*heldBlock{},
		byPool:      map[string][]*heldBlock{},
		nodesOf:     map[string]poolNodes{},
		unknown:     map[string][]netip.Prefix{},
		unknownOf:   map[netip.Prefix][]string{},
		claims:      map[string][]netip.Prefix{},
		turnover:    map[string]uint64{},
		closed:      map[netip.Prefix]crd.Block{},
		closedFor:   map[string][]netip.Prefix{},
		withheld:    ipalloc.NewSpace(),
		refused:     map[netip.Prefix]bool{},
		shown:       map[types.UID]bool{},
		gone:        map[types.UID]bool{},
		awaited:     map[types.UID]chan struct{}{},
		offered:     map[string][]netip.Prefix{},
		ciliumNodes: newCiliumNodes(),
	}
}

// unlock ends a change of the ledger. Only unlock reports freed CIDRs, so that no waiting
// node is missed.
func (l *Ledger) unlock() {
	freed, taken := l.freed, l.taken
	l.freed, l.taken = nil, nil
	l.mu.Unlock()
	if l.Changed != nil && len(freed)+len(taken) > 0 {
		l.Changed(freed, taken)
	}
}

// release frees what a block or a claim holds.
func (l *Ledger) release(cidr netip.Prefix) {
	if o, held := l.space.Owner(cidr); held && l.space.Release(cidr) {
		l.move(o.Pool)
		l.freed = append(l.freed, cidr)
	}
}

// SetReady records that all blocks and all CiliumNodes have been read.
func (l *Ledger) SetReady() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.space.Ready() {
		for name, cn := range l.ciliumNodes.seen { // all blocks are known now: see withholds
			if slices.ContainsFunc(cn.AssignedCIDRs(), func(p netip.Prefix) bool { return !l.withholds(cn, p) }) {
				l.setForeign(name, l.foreignOf(name))
			}
		}
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

// Upsert stores a block from the watch.
func (l *Ledger) Upsert(b crd.Block) {
	l.mu.Lock()
	defer l.unlock()
	if l.gone[b.UID] {
		return
	}
	l.set(b)
	if !l.shown[b.UID] {
		l.shown[b.UID] = true
		l.wake(b.UID)
	}
}

// maxGone bounds how many deleted blocks the ledger remembers. Late events arrive within
// seconds, long before this many blocks are deleted.
const maxGone = 1 << 16

// Remove handles a block that the watch reports as deleted.
func (l *Ledger) Remove(b crd.Block) {
	l.mu.Lock()
	defer l.unlock()
	if held, ok := l.blocks[b.CIDR]; ok && held.UID == b.UID {
		l.drop(held.Block)
	}
	l.bury(b)
}

// AssumeDeleted records that a block was found deleted, or that this process has deleted it
// together with its object. Anything that the watch still delivers about it is stale.
func (l *Ledger) AssumeDeleted(b crd.Block) {
	l.mu.Lock()
	defer l.unlock()
	if held, ok := l.blocks[b.CIDR]; ok && held.UID == b.UID {
		l.drop(held.Block)
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
	l.wake(b.UID)
}

// Assume stores a block that the API server has just returned, before the watch delivers
// it.
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
			l.drop(held.Block)
		}
	}
	l.setClosed(b.CIDR, crd.Block{})
	delete(l.refused, b.CIDR)
	isNew := l.index(b)
	owner := ipalloc.Owner{Pool: b.Pool, Node: b.Node, Phase: b.Phase}
	if o, held := l.space.Owner(b.CIDR); held {
		removeFrom(l.claims, o.Node, b.CIDR)
		if o.Pool != owner.Pool || o.Node != owner.Node {
			l.space.Release(b.CIDR) // our claim, lost to another writer
		}
	}
	// An overlap is no reason to drop a block: Overlaps reports it later.
	_ = l.space.Restore(ipalloc.Held{CIDR: b.CIDR, Owner: owner})
	if isNew { // it covers what the node's CiliumNode names
		l.setForeign(b.Node, l.foreignOf(b.Node))
	}
}

// settle resolves an unknown claim once the API server has answered.
func (l *Ledger) settle(cidr netip.Prefix) {
	for _, node := range l.unknownOf[cidr] {
		removeFrom(l.unknown, node, cidr)
	}
	delete(l.unknownOf, cidr)
}

// removeFrom removes a value from those of a key.
func removeFrom[K, V comparable](of map[K][]V, key K, value V) {
	i := slices.Index(of[key], value)
	switch {
	case i < 0:
	case len(of[key]) == 1:
		delete(of, key)
	default:
		of[key] = slices.Delete(of[key], i, i+1)
	}
}

// setClosed records the last block of a free CIDR, if its agent had closed it.
func (l *Ledger) setClosed(cidr netip.Prefix, last crd.Block) {
	if was, is := l.closed[cidr]; is {
		removeFrom(l.closedFor, was.Node, cidr)
		delete(l.closed, cidr)
	}
	if last.Closed.Agent != "" {
		l.closed[cidr], l.closedFor[last.Node] = last, append(l.closedFor[last.Node], cidr)
	}
}

func (l *Ledger) drop(b crd.Block) {
	l.setClosed(b.CIDR, b)
	l.unindex(b.CIDR)
	delete(l.shown, b.UID)
	l.release(b.CIDR)
	// The block no longer covers what the node's CiliumNode names.
	l.setForeign(b.Node, l.foreignOf(b.Node))
}

// wake makes those who wait for a block look again.
func (l *Ledger) wake(uid types.UID) {
	if next, ok := l.awaited[uid]; ok {
		close(next)
		delete(l.awaited, uid)
	}
}

// await returns a channel that is closed when it is time to look for a block again, or nil
// once the watch has delivered it or it is gone.
func (l *Ledger) await(uid types.UID) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown[uid] || l.gone[uid] {
		return nil
	}
	if _, ok := l.awaited[uid]; !ok {
		l.awaited[uid] = make(chan struct{})
	}
	return l.awaited[uid]
}

// WaitShown waits until the watch has delivered a block, and thereby all blocks created
// before it.
func (l *Ledger) WaitShown(ctx context.Context, uid types.UID) error {
	for next := l.await(uid); next != nil; next = l.await(uid) {
		select {
		case <-next:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.wake(uid) // nothing stays behind; others that wait look again
			return ctx.Err()
		}
	}
	return nil
}

// Shown reports whether the watch has delivered a block.
func (l *Ledger) Shown(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown[uid]
}

// Block returns the block with that CIDR.
func (l *Ledger) Block(cidr netip.Prefix) (crd.Block, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, ok := l.blocks[cidr]; ok {
		return held.Block, true
	}
	return crd.Block{}, false
}

// NodeBlocks returns the blocks that a node holds, sorted by address.
func (l *Ledger) NodeBlocks(node string) []crd.Block {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]crd.Block, 0, len(l.byNode[node]))
	for _, held := range l.byNode[node] {
		out = append(out, held.Block)
	}
	return out
}

// CIDRs returns the CIDRs of all blocks, in no particular order.
func (l *Ledger) CIDRs() []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.blocks))
}

// Nodes returns the names of all nodes with a block or an unknown claim.
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

// Size returns how many blocks a pool has.
func (l *Ledger) Size(pool string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byPool[pool])
}

// SizeInNodes returns how many nodes have a block of a pool.
func (l *Ledger) SizeInNodes(pool string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodesOf[pool].all
}

// Free returns how many blocks can currently be claimed from cut.
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
