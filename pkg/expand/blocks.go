package expand

import (
	"net/netip"
	"slices"
	"sort"
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
	published   int // its addresses in the pool; of a whole block at least 1 while its CIDR, or one that overlaps it, is assigned
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
	retired    int
	change     change
	assigned   bool       // the plan assigns it whole
	waitReason WaitReason // why it is not marked, or parked, yet; "": nothing delays it
	// byAgent and byPods name its users if it is on its way out.
	byAgent, byPods []string
}

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
	runs, nodeNamesAnother bool
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
	} else if usable && (!u.state.EntriesUnwritable || !inHandshake(entry)) {
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
	return slices.ContainsFunc(bs.all, func(b *block) bool { return !b.Unwritable && (b.change == changeUndrain || b.change == changeDrain) })
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

// capacity returns the number of addresses that the block contributes while it serves.
func (b *block) capacity() int { return b.allocatable + b.toPublish }

// usable reports whether a may be published.
func (b *block) usable(a netip.Addr) bool {
	if b.Size > 0 {
		return b.CIDR.Contains(a)
	}
	_, ok := slices.BinarySearchFunc(b.Usable, a, netip.Addr.Compare)
	return ok
}

// empty reports whether no address of the block is left on the node.
func (b *block) empty() bool {
	return b.published == 0 && b.entries == 0 && b.users == 0 && !b.Listed
}
