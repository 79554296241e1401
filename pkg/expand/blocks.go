package expand

import (
	"net/netip"
	"slices"
	"sort"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// blocks are the node's blocks, with their published, marked and used addresses.
type blocks struct {
	// all are sorted. nested: some share addresses.
	all    []*block
	nested bool
	// published counts the addresses in the pool, including the additions of the plan and its
	// undrained blocks. foreign counts the addresses outside all blocks that any pod may get.
	published, foreign int
	// walk are the addresses that the handshake visits, sorted.
	walk []netip.Addr
}

// block is a Block, with derived facts and planned changes.
type block struct {
	*Block
	fate        fate
	published   int // its addresses in the pool
	usableIn    int // published addresses that are usable
	allocatable int // without an owner that a person has set, so that any pod may get them
	entries     int // release-ips entries for its addresses
	users       int // its addresses in use
	own         int // addresses in use by the agent itself
	// anchored: one of its addresses never becomes free by itself, because it is the agent's own or a
	// person reserved it.
	anchored bool
	// assignment is zero where the agent is assigned addresses.
	assignment wholeBlock

	// publish are the addresses that the plan adds; toPublish counts the addresses that this or a
	// later plan adds.
	publish   []netip.Addr
	toPublish int
	// retired counts own addresses that the agent does not take again when it restarts.
	retired  int
	change   change
	assigned bool       // the plan assigns it whole
	heldFor  WaitReason // why it is not marked, or parked, yet; "": nothing holds it
	// byAgent and byPods name its users if it is on its way out.
	byAgent, byPods []string
}

// fate is what a block's phase, its request and its delay make of it, before the plan.
type fate int

const (
	fateServing   fate = iota // it is in service
	fateDelayed               // it is in service, and must leave, but not yet
	fateMustLeave             // it is in service, and must leave now
	fateDraining              // it drains, and may return to service
	fateVacating              // it drains and must leave, even if the node needs its addresses
	fateCooling               // it cools down, and may return to service
	fateExpiring              // it cools down, and must leave
)

func fateOf(b *Block) fate {
	requested := b.Request != None
	switch b.Phase {
	case ipalloc.Draining:
		if requested {
			return fateVacating
		}
		return fateDraining
	case ipalloc.CoolingDown:
		if requested {
			return fateExpiring
		}
		return fateCooling
	}
	if !requested {
		return fateServing
	}
	if b.Delay.Reason != "" {
		return fateDelayed
	}
	return fateMustLeave
}

// change is how the plan changes a block's phase.
type change int

const (
	changeNone    change = iota
	changeUndrain        // it returns to service
	changeDrain          // it starts, or starts again, to drain
	changeFree           // it starts to cool down
)

// wholeBlock holds facts about a block of an agent that is assigned whole blocks.
type wholeBlock struct {
	// whole: the agent is assigned whole blocks. The block's open addresses are capacity, whether
	// it is planned to leave or not.
	whole bool
	// notCompacted: its compaction, if it has begun, is given up.
	notCompacted bool
	// returnable: the agent returns the block by itself once it does not need it.
	returnable bool
	// predatesCiliumNode: it is older than the CiliumNode, so that an agent may have been assigned it by
	// an earlier one. wasAssigned: it has been seen Listed.
	predatesCiliumNode, wasAssigned bool
	// runs: an agent with a fixed block runs with it though its Node names no CIDR. replaced:
	// the Node names one.
	runs, replaced bool
}

func sortBlocks(s *State, budget *Budget) *blocks {
	bs := &blocks{all: make([]*block, len(s.Blocks))}
	list := make([]block, len(s.Blocks))
	for i := range list {
		list[i].Block = budget.limit(&s.Blocks[i])
		list[i].fate = fateOf(list[i].Block)
		bs.all[i] = &list[i]
	}
	slices.SortFunc(bs.all, func(a, b *block) int { return a.CIDR.Compare(b.CIDR) })
	for i := 1; i < len(bs.all); i++ {
		// Prefixes nest or are disjoint, so comparing neighbours suffices.
		bs.nested = bs.nested || bs.all[i-1].CIDR.Overlaps(bs.all[i].CIDR)
	}
	return bs
}

// blockOf is the block that a belongs to, nil for a foreign address. Where
// blocks share addresses, these belong to the one without a conflict.
func (bs *blocks) blockOf(a netip.Addr) *block {
	candidates := bs.all
	if !bs.nested { // the last block that begins at or before a
		next := sort.Search(len(bs.all), func(i int) bool { return bs.all[i].CIDR.Addr().Compare(a) > 0 })
		candidates = bs.all[max(next-1, 0):next]
	}
	var found *block
	for _, b := range candidates {
		if b.CIDR.Contains(a) && (found == nil || found.Conflict && !b.Conflict) {
			found = b
		}
	}
	return found
}

// classify sorts published, marked and used addresses under their blocks.
func (bs *blocks) classify(u *usage) {
	for a, owner := range u.state.Pool {
		if u.state.ours(a) {
			bs.classifyPublished(u, a, owner)
		}
	}
	for a := range u.state.Release {
		if !u.state.ours(a) {
			continue
		}
		if b := bs.blockOf(a); b != nil {
			b.entries++
		}
		bs.walk = append(bs.walk, a)
	}
	slices.SortFunc(bs.walk, netip.Addr.Compare)

	for a, owner := range u.state.Used {
		bs.classifyUsed(a, userOf(owner))
	}
	for a, holder := range u.unreported {
		bs.classifyUsed(a, holder)
	}
}

func (bs *blocks) classifyPublished(u *usage, a netip.Addr, owner string) {
	bs.published++
	entry, ok := u.state.Release[a]
	b := bs.blockOf(a)
	if b == nil {
		if owner == "" && !inHandshake(entry) {
			bs.foreign++
		}
		return
	}
	b.published++
	usable := b.usable(a)
	if usable {
		b.usableIn++
	}
	if owner != "" {
		b.anchored = true
	} else if usable && (!u.state.EntriesStuck || !inHandshake(entry)) {
		b.allocatable++
	}
	if !ok && b.releases(usable) {
		bs.walk = append(bs.walk, a)
	}
}

func (bs *blocks) classifyUsed(a netip.Addr, u user) {
	if b := bs.blockOf(a); b != nil {
		b.users++
		if u.agent {
			b.own++
			b.anchored = true
		}
	}
}

// inHandshake reports whether the agent allocates no address with this entry (Cilium
// v1.20.1, pkg/ipam/crd.go, isIPInReleaseHandshake).
func inHandshake(entry ReleaseStatus) bool {
	return entry == Marked || entry == Ready || entry == Released
}

// inService counts the blocks in service once the plan is done.
func (bs *blocks) inService() int {
	n := 0
	for _, b := range bs.all {
		if b.inService() {
			n++
		}
	}
	return n
}

// serviceChanges reports whether the plan already changes which blocks serve, by writes that should pass.
func (bs *blocks) serviceChanges() bool {
	return slices.ContainsFunc(bs.all, func(b *block) bool { return !b.Stuck && (b.change == changeUndrain || b.change == changeDrain) })
}

// openCapacity is the number of published addresses of blocks in service, or of no block, that pods
// can have.
func (bs *blocks) openCapacity() int {
	n := bs.foreign
	for _, b := range bs.all {
		if b.inService() {
			n += b.allocatable
		}
	}
	return n
}

// planned returns the fate of the block once the plan is done.
func (b *block) planned() fate {
	switch b.change {
	case changeUndrain:
		return fateServing
	case changeDrain:
		return fateDraining
	case changeFree:
		return fateCooling
	default:
		return b.fate
	}
}

// inService reports whether the block's addresses are capacity once the plan is done.
func (b *block) inService() bool {
	planned := b.planned()
	if b.Conflict || planned != fateServing && planned != fateDelayed {
		return false
	}
	return !b.Stuck || b.published != 0 && b.change != changeUndrain
}

// mayGo reports whether reclaim may take the block.
func (b *block) mayGo() bool { return b.change != changeUndrain && !b.anchored && !b.IsKept() }

// leaving reports whether the block is leaving or must leave now, and does not return to
// service even if the node needs its addresses.
func (b *block) leaving() bool {
	return b.fate == fateMustLeave || b.fate == fateVacating || b.fate == fateExpiring
}

// releases reports whether a published address of the block must go by the handshake. drainAgain is
// for addresses of a cooling block.
func (b *block) releases(usable bool) bool {
	switch b.fate {
	case fateDraining, fateVacating:
		return true
	case fateCooling, fateExpiring:
		return false
	default:
		return b.Conflict || !usable
	}
}

// vacates reports whether even the agent's own addresses leave the block: a person has
// requested its drain. Idleness is no reason to have an agent change its addresses.
func (b *block) vacates() bool { return b.fate == fateVacating && b.Request != PoolChanged }

// mayReturn reports whether a block that is leaving can be restored to service.
func (b *block) mayReturn() bool {
	returnable := b.fate == fateDraining || b.fate == fateCooling
	return returnable && !b.Conflict && b.change != changeUndrain
}

// drainEnds reports whether the reason for a block's leaving no longer holds: its node was gone and
// its pods may still have its addresses, or its removal is no longer requested, also of one that has
// cooled down since.
func (b *block) drainEnds() bool {
	if !b.mayReturn() || b.superseded() {
		return false
	}
	if b.fate == fateCooling {
		// An agent returns a whole block again that it does not need.
		return b.Reason == NodeGone || b.Undone && !b.assignment.whole
	}
	switch b.Reason {
	case Reclaim: // of whole blocks none is reclaimed unless it is compacted; one in use was restored
		return b.Pinned || b.assignment.whole && b.Listed
	case Compaction:
		return b.Pinned || b.assignment.notCompacted
	default:
		return true
	}
}

// superseded reports whether a block is surplus: the node was assigned another one,
// because this one's range was draining when its Node came back. An agent with a
// fixed block never gets a second, so this one never returns to service.
func (b *block) superseded() bool { return b.assignment.replaced && b.published == 0 && !b.Listed }

// keepsUsed reports whether the plan can publish the block's addresses in use.
func (b *block) keepsUsed() bool {
	return !b.Conflict && !b.Orphaned && b.change != changeUndrain && b.Phase != ipalloc.CoolingDown
}

// mayHavePods reports whether an agent may have pods in a block that is not listed, because an agent
// that is assigned addresses still runs, or because the CiliumNode was deleted and created again. A
// block that was listed since was returned: the first agent removes no block from the list, and any
// other only once it has restored its pods. It writes a request before that (updateLocalNode and
// restoreFinished in pkg/ipam/multipool_manager.go, Cilium v1.20.2).
func (b *block) mayHavePods() bool {
	lost := b.assignment.predatesCiliumNode && b.keepsUsed() && b.Request != NodeUnselected && b.Size > 0
	return (b.Leftover || lost) && !b.assignment.wasAssigned
}

// goingOut reports whether the block's addresses leave, once the plan is done.
func (b *block) goingOut() bool {
	switch b.planned() {
	case fateDraining, fateVacating:
		return true
	case fateCooling, fateExpiring:
		return false
	default:
		return b.Conflict
	}
}

// capacity returns the number of addresses that the block contributes while it serves.
func (b *block) capacity() int { return b.allocatable + b.toPublish }

// usable reports whether a may be published.
func (b *block) usable(a netip.Addr) bool {
	_, ok := slices.BinarySearchFunc(b.Usable, a, netip.Addr.Compare)
	return ok
}

// empty reports whether no address of the block is left on the node.
func (b *block) empty() bool {
	return b.published == 0 && b.entries == 0 && b.users == 0 && !b.Listed
}
