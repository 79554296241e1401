package state

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
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

// Ledger is this process's knowledge of blocks: blocks that the watch has delivered, and its own
// writes that the watch has not delivered yet. It is safe for concurrent use.
type Ledger struct {
	*core
	// Exclusions and Pins are parts under the same lock.
	Exclusions *Exclusions
	Pins       *Pins

	blocks *heldBlocks
	nodes  *ciliumNodes
	claims *claims

	// claimable and ready are closed by SetClaimable and SetReady.
	claimable, ready chan struct{}
	// inCache are the held blocks that the watch has delivered, and gone are the deleted
	// ones, so that neither a late response nor a lagging watch restores one.
	inCache, gone map[types.UID]bool
	// waiters are closed when it is time for WaitForCache to look for a block again.
	waiters map[types.UID]chan struct{}
}

// NewLedger returns an empty ledger that is not ready yet.
func NewLedger() *Ledger {
	c := &core{space: ipalloc.NewSpace(), firstSeen: map[moment]time.Time{}}
	blocks := &heldBlocks{
		core: c, byCIDR: map[netip.Prefix]*heldBlock{}, moving: map[string]map[string]int{}, used: map[string][2]int64{},
		byNode: map[string][]*heldBlock{}, byPool: map[string][]*heldBlock{},
	}
	nodes := &ciliumNodes{core: c, blocks: blocks, seen: map[string]*seenNode{}}
	exclusions := &Exclusions{
		core: c, blocks: blocks, nodes: nodes, reserved: ipalloc.NewSpace(),
		asked: asked{asks: map[exclude.Claimant]exclude.Ask{}, withQuota: ipalloc.NewSpace()},
	}
	pins := &Pins{
		core: c, exclusions: exclusions, nodes: nodes,
		pinned: ipalloc.NewSpace(), pinsOf: map[string][]netip.Prefix{}, enforced: map[netip.Prefix]bool{},
	}
	return &Ledger{
		core: c, blocks: blocks, nodes: nodes, Exclusions: exclusions, Pins: pins,
		claims: &claims{
			core: c, blocks: blocks, pins: pins,
			underWay: map[string][]netip.Prefix{}, turnover: map[string]uint64{},
			unknown: map[string][]netip.Prefix{}, unknownOf: map[netip.Prefix][]string{},
			closed: map[closedOn]expand.Closed{}, refused: map[netip.Prefix]bool{},
		},
		claimable: make(chan struct{}), ready: make(chan struct{}),
		inCache: map[types.UID]bool{}, gone: map[types.UID]bool{}, waiters: map[types.UID]chan struct{}{},
	}
}

// SetClaimable records that all blocks and all CiliumNodes have been read, and what else withholds addresses: the
// rest is known to be free.
func (l *Ledger) SetClaimable() {
	l.change(func() {
		if !l.space.Ready() {
			for name, n := range l.nodes.seen { // all blocks are known now: see withholds
				if slices.ContainsFunc(n.view.AssignedCIDRs(), func(p netip.Prefix) bool { return !l.nodes.withholds(n.view, p) }) {
					l.nodes.setNamed(name, l.nodes.readNamed(name))
				}
			}
			l.space.SetReady()
			l.Exclusions.grantAll()
			close(l.claimable)
		}
	})
}

// SetReady records that everything has been read, pods too.
func (l *Ledger) SetReady() {
	l.SetClaimable()
	l.change(func() {
		if !l.Ready() {
			close(l.ready)
		}
	})
}

// Ready reports whether SetReady has been called.
func (l *Ledger) Ready() bool {
	select {
	case <-l.ready:
		return true
	default:
		return false
	}
}

// WaitClaimable waits for SetClaimable.
func (l *Ledger) WaitClaimable(ctx context.Context) error { return waitFor(ctx, l.claimable) }

// WaitReady waits for SetReady.
func (l *Ledger) WaitReady(ctx context.Context) error { return waitFor(ctx, l.ready) }

func waitFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Upsert stores a block from the watch.
func (l *Ledger) Upsert(b crd.Block) {
	l.change(func() {
		if l.gone[b.UID] {
			return
		}
		l.set(b)
		if !l.inCache[b.UID] {
			l.inCache[b.UID] = true
			l.wake(b.UID)
		}
	})
}

// maxGone bounds the number of deleted blocks that the ledger remembers. Late events arrive within
// seconds, long before this many blocks are deleted.
const maxGone = 1 << 16

// Remove handles a block that the watch reports as deleted, that was found deleted, or that this
// process has deleted together with its object. Anything that the watch still delivers about it is
// stale.
func (l *Ledger) Remove(b crd.Block) {
	l.change(func() {
		if block, ok := l.blocks.byCIDR[b.CIDR]; ok && block.UID == b.UID {
			l.drop(block.Block)
		}
		if len(l.gone) >= maxGone {
			clear(l.gone)
		}
		l.gone[b.UID] = true
		delete(l.inCache, b.UID)
		l.wake(b.UID)
	})
}

// Assume stores a block that the API server has just returned, before the watch delivers
// it.
func (l *Ledger) Assume(b crd.Block) {
	l.change(func() {
		for _, node := range l.claims.unknownOf[b.CIDR] { // the API server has answered
			removeFrom(l.claims.unknown, node, b.CIDR)
		}
		delete(l.claims.unknownOf, b.CIDR)
		if l.gone[b.UID] {
			l.claims.unhold(b.Node, b.CIDR)
			return
		}
		l.set(b)
	})
}

func (l *Ledger) set(b crd.Block) {
	b.Created = l.notInFuture(b.UID, b.Created)
	b.Since = l.notInFuture(b.UID, b.Since)
	if block, ok := l.blocks.byCIDR[b.CIDR]; ok {
		if !reached(b.ResourceVersion, block.ResourceVersion) {
			return
		}
		if block.UID != b.UID {
			l.drop(block.Block)
		}
	}
	delete(l.claims.refused, b.CIDR)
	isNew := l.blocks.index(b)
	owner := ipalloc.Owner{Pool: b.Pool, Node: b.Node, Phase: b.Phase}
	if o, block := l.space.Owner(b.CIDR); block {
		removeFrom(l.claims.underWay, o.Node, b.CIDR)
		if o.Pool != owner.Pool || o.Node != owner.Node {
			l.space.Release(b.CIDR) // our claim, lost to another writer
		}
	}
	// An overlap is no reason to drop a block: Overlaps reports it later.
	_ = l.space.Restore(ipalloc.Held{CIDR: b.CIDR, Owner: owner})
	if isNew { // it covers addresses that the node's CiliumNode names
		l.nodes.countUsed(b.Node, []*heldBlock{l.blocks.byCIDR[b.CIDR]})
		l.nodes.setNamed(b.Node, l.nodes.readNamed(b.Node))
	}
}

func (l *Ledger) drop(b crd.Block) {
	if b.Closed.Agent != "" {
		l.claims.closed[closedOn{b.CIDR, b.Node}] = b.Closed
	}
	l.blocks.unindex(b.CIDR)
	delete(l.inCache, b.UID)
	l.claims.freeCIDR(b.CIDR)
	// The block no longer covers addresses that the node's CiliumNode names.
	l.nodes.setNamed(b.Node, l.nodes.readNamed(b.Node))
}

// wake makes waiters for a block look again.
func (l *Ledger) wake(uid types.UID) {
	if next, ok := l.waiters[uid]; ok {
		close(next)
		delete(l.waiters, uid)
	}
}

// await returns a channel that is closed when it is time to look for a block again, or nil
// once the watch has delivered it or it is gone.
func (l *Ledger) await(uid types.UID) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inCache[uid] || l.gone[uid] {
		return nil
	}
	if _, ok := l.waiters[uid]; !ok {
		l.waiters[uid] = make(chan struct{})
	}
	return l.waiters[uid]
}

// WaitForCache waits until the watch has delivered a block, and thereby all blocks created
// before it.
func (l *Ledger) WaitForCache(ctx context.Context, uid types.UID) error {
	for next := l.await(uid); next != nil; next = l.await(uid) {
		select {
		case <-next:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.wake(uid) // no record stays behind; other waiters look again
			return ctx.Err()
		}
	}
	return nil
}

// InCache reports whether the watch has delivered a block.
func (l *Ledger) InCache(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inCache[uid]
}

// Nodes returns the names of all nodes with a block or an unknown claim.
func (l *Ledger) Nodes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := slices.Collect(maps.Keys(l.blocks.byNode))
	for node := range l.claims.unknown {
		if _, ok := l.blocks.byNode[node]; !ok {
			names = append(names, node)
		}
	}
	return names
}

// Facts returns the ledger's part of a node's Snapshot.
func (l *Ledger) Facts(name string) *Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &Snapshot{Name: name}
	if n := l.nodes.seen[name]; n != nil && n.gone {
		s.deleted = n.view
	} else if n != nil {
		s.CiliumNode = n.view
		s.restored = n.restored
		s.recreated = n.recreated
	}
	for _, block := range l.blocks.byNode[name] {
		s.Blocks = append(s.Blocks, block.Block)
		if len(l.space.Overlapping(block.CIDR)) > 0 {
			s.overlapped = append(s.overlapped, block.CIDR)
		}
	}
	s.pins = slices.Clone(l.Pins.pinsOf[name])
	s.missingPins = l.Pins.missing(name, name)
	for _, cidr := range l.claims.underWay[name] {
		s.Claims[ipalloc.FamilyOf(cidr.Addr())]++
	}
	return s
}

// setPools replaces the pools, and the ranges that the changed ones reserve, and how they are cut. Each
// event of a pool comes here, so a pool that is the same costs nothing but a comparison.
func (l *Ledger) setPools(old, now map[string]*crd.Pool) {
	// Changed cannot be called: it reads the pools, which are locked. Whoever changes a pool wakes all nodes
	// and pools.
	l.mu.Lock()
	defer l.mu.Unlock()
	removed := changedPools(old, now)
	come := changedPools(now, old)
	for _, pool := range come {
		l.claims.turnover[pool.Name] += 0
		for _, f := range ipalloc.Families() {
			for _, prefix := range pool.Skipped(f) {
				l.Exclusions.reserve(prefix)
			}
		}
	}
	l.Pins.setPools(now, removed, come)
	l.Exclusions.setQuotas(now)
	for _, pool := range removed {
		if now[pool.Name] == nil {
			delete(l.claims.turnover, pool.Name)
		}
		for _, f := range ipalloc.Families() {
			for _, prefix := range pool.Skipped(f) {
				l.Exclusions.unreserve(prefix)
			}
		}
	}
}

// changedPools returns the pools that others lack, or have in another version.
func changedPools(pools, base map[string]*crd.Pool) (changed []*crd.Pool) {
	for name, pool := range pools {
		if base[name] != pool {
			changed = append(changed, pool)
		}
	}
	return changed
}
