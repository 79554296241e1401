package expand

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// handshake is the release of addresses with an agent that is assigned addresses.
type handshake struct {
	state  *State
	usage  *usage
	blocks *blocks
	// planner has the plan, with the steps that the handshake adds.
	planner *planner
	// roomToMove: the agent can take other addresses in place of its retired ones.
	roomToMove bool
}

func newHandshake(p *planner) *handshake {
	h := &handshake{state: p.state, usage: &p.usage, blocks: p.blocks, planner: p}
	h.roomToMove = h.hasRoomToMove()
	return h
}

// advance advances every address that has a release-ips entry or must leave by one step.
// The agent's side is in Cilium v1.20.1, pkg/ipam/crd.go, updateLocalNodeResource:
//
//	(none) ──Mark──▶ marked ──agent──▶ ready ──AckHold──▶ Remove ──▶ Clear
//	                   │                 │
//	                   └─────────────────┴── in use, or stays: Clear
//
// An agent that does not run the family does not answer marks in its pool: see releaseDisabledFamily.
//
// The handshake begins differently for the agent's own addresses in a block with a requested drain:
// see retire.
func (h *handshake) advance() {
	h.planner.rememberWaits()
	for _, a := range h.blocks.walk {
		entry := h.state.Release[a]
		_, published := h.state.Pool[a]
		b := h.blocks.blockOf(a)
		isForeign := b == nil && published // the operator must not touch it
		if isForeign || b != nil && h.planner.conditionFirst(b) {
			continue
		}
		switch {
		case !published:
			h.clearUnpublished(a, entry)
		case !b.releases(b.usable(a)):
			h.planner.clear(a)
		case h.state.FamilyDisabled:
			h.releaseDisabledFamily(b, a, entry)
		default:
			h.leave(a, entry, b)
		}
	}
}

// clear deletes the release entry of an address.
func (p *planner) clear(a netip.Addr) { p.plan.Clear = append(p.plan.Clear, a) }

// conditionFirst reports whether this plan changes the block's phase, so that its addresses
// must wait for the next plan.
func (p *planner) conditionFirst(b *block) bool {
	return b.change == changeUndrain || b.Phase == ipalloc.CoolingDown && b.change == changeDrain || p.cools(b)
}

// clearUnpublished deletes the entry of an address that is not in the pool. The agent
// answers a mark of such an address with do-not-release.
func (h *handshake) clearUnpublished(a netip.Addr, entry ReleaseStatus) {
	if entry == Marked && !h.markTimedOut(a) {
		return
	}
	h.planner.clear(a)
}

// markTimedOut reports whether the mark of an address has been without an answer for AckTimeout.
func (h *handshake) markTimedOut(a netip.Addr) bool {
	p := h.planner
	return passedOrRemember(p, &p.nextMemory.MarkedSince, p.input.memory.MarkedSince, a, p.input.policy.AckTimeout)
}

// leave advances a published address that must leave by one step. entry is empty if the
// address has none.
func (h *handshake) leave(a netip.Addr, entry ReleaseStatus, b *block) {
	p := h.planner
	free := !h.usage.inUse(a)
	_, hasEntry := h.state.Release[a]
	switch {
	case h.releaseBeforeAgentStart(b, a, entry, hasEntry, free), h.retire(b, a, entry, hasEntry):
		// It keeps its mark, or must no longer be marked; or the agent keeps the address
		// until it restarts.
	case yetToMark(b, entry, hasEntry, free):
		if free && h.usage.trusted {
			h.enter(&p.plan.Mark, b, a)
		}
	case entry == Marked && free && h.usage.trusted:
		// An agent loses its answer if another write of the CiliumNode conflicts with it.
		if h.markTimedOut(a) {
			p.clear(a)
		}
	case entry == Ready && free && h.usage.trusted:
		if passedOrRemember(p, &p.nextMemory.AckedSince, p.input.memory.AckedSince, a, p.input.policy.AckHold) {
			p.plan.Remove = append(p.plan.Remove, a)
		}
	case entry == Ready && free:
		// The hold starts again once the agent is settled.
	default:
		// It is in use; or a restarting agent could not restore a marked address; or the
		// agent refused; or the state is not part of this handshake.
		p.clear(a)
	}
}

// yetToMark reports whether an address must be marked once it is free: it has no entry, or
// it was retired and the agent has restarted since.
func yetToMark(b *block, entry ReleaseStatus, hasEntry, free bool) bool {
	return !hasEntry || entry == Released && free && b.vacates()
}

// releaseBeforeAgentStart handles an address of a node's first block, which is being replaced, before
// the agent reads it for the first time. It reports whether it handled the address.
func (h *handshake) releaseBeforeAgentStart(b *block, a netip.Addr, entry ReleaseStatus, hasEntry, free bool) bool {
	if b.Reason != PoolChanged {
		return false
	}
	if !hasEntry {
		// Mark only before an agent has read the address: otherwise the agent's own address
		// would pin the block for the lifetime of the node.
		if free && h.state.Fresh {
			h.planner.plan.Mark = append(h.planner.plan.Mark, a)
		}
		return true
	}
	// An agent that starts does not use the address: it was marked before.
	return entry == Marked && free && !h.usage.reported
}

// ProbeAddress returns an address that is neither in a PodIPPool, which cannot contain multicast
// (this is documentation's: RFC 6676), nor in pool, the CiliumNode's. Whatever families it runs, an
// agent answers a mark of this address with do-not-release and a report of all addresses in use
// (pkg/ipam/crd.go, updateLocalNodeResource, v1.20.1).
func ProbeAddress(f ipalloc.Family, pool map[netip.Addr]string) netip.Addr {
	a := netip.AddrFrom4([4]byte{233, 252, 0, 1})
	if f == ipalloc.IPv6 {
		a = netip.MustParseAddr("ff0e::db8:0:1")
	}
	for {
		if _, published := pool[a]; !published {
			return a
		}
		a = a.Next()
	}
}

// releaseDisabledFamily advances an address of a family that the agent does not run by one step. The
// agent assigns it to no pod and does not answer its mark. The mark protects against an agent
// that restarts with the family enabled: it neither assigns nor restores a marked address. An
// agent that restarted just before the mark may not have reported yet. So once the mark has
// stood for AckTimeout, the operator asks the agent for a report. The agent writes the report
// only onto the latest version of its CiliumNode, so by then it has seen the mark; and it
// still does not run the family, or State.FamilyDisabled would be unset.
func (h *handshake) releaseDisabledFamily(b *block, a netip.Addr, entry ReleaseStatus) {
	p := h.planner
	ready := !h.usage.inUse(a) && h.state.AgentSettled
	marked := entry == Marked || entry == Ready
	answer, wasAsked := h.state.Release[ProbeAddress(h.state.Family, h.state.Pool)]
	_, hasEntry := h.state.Release[a]
	switch {
	case !hasEntry && ready:
		h.enter(&p.plan.Mark, b, a)
	case !hasEntry:
		// It may be in use now or soon.
	case !ready || !marked:
		p.clear(a)
	case !h.markTimedOut(a):
	case answer == DoNotRelease:
		p.plan.Remove = append(p.plan.Remove, a)
	case !wasAsked:
		p.plan.Probe = true
	}
}

// enter adds an address of a block that looks free to entries, unless it may belong to a pod that has
// just been added. Such pods may keep coming: once the block waits no more, the agent's answer alone
// protects a pod.
func (h *handshake) enter(entries *[]netip.Addr, b *block, a netip.Addr) {
	if len(h.usage.pendingPods) > 0 && h.planner.awaitPods(b) {
		h.planner.requeueAt(h.planner.input.now.Add(h.usage.pendingFor))
		return
	}
	*entries = append(*entries, a)
}

// awaitPods reports whether a block waits until the addresses of recent pods are known, but no longer than
// for one that hangs. It records the wait.
func (p *planner) awaitPods(b *block) bool {
	if passedOrRemember(p, &p.nextMemory.AwaitingPodsSince, p.input.memory.AwaitingPodsSince, b.CIDR, p.input.policy.slowStart()) {
		return false
	}
	b.waitReason = WaitPodAddress
	return true
}

// rememberWaits remembers which draining blocks have waited for long enough: otherwise each address that a
// pod frees would wait anew, and meanwhile another pod could take it.
func (p *planner) rememberWaits() {
	for _, b := range p.blocks.all {
		begin, known := p.input.memory.AwaitingPodsSince[b.CIDR]
		if known && b.Phase == ipalloc.Draining && !p.input.now.Before(begin.Add(p.input.policy.slowStart())) {
			remember(&p.nextMemory.AwaitingPodsSince, b.CIDR, begin)
		}
	}
}

// passedOrRemember reports whether key has been in its state for wait according to old. It carries the
// time over to next, and requests another decision when that time has passed.
func passedOrRemember[K comparable](p *planner, next *map[K]time.Time, old map[K]time.Time, key K, wait time.Duration) bool {
	begin, ok := old[key]
	if !ok {
		begin = p.input.now
	}
	remember(next, key, begin)
	return p.dueOrRequeue(begin.Add(wait))
}

// retire has the agent take another address in place of its own a when it restarts. It
// reports whether a is, or is about to be, retired.
//
// An agent neither restores nor allocates an address whose entry is Released; while it runs, it
// ignores the entry and keeps the address (Cilium v1.20.1, pkg/ipam/crd.go, allocate and
// updateLocalNodeResource). So the address stays in the pool and its block in podCIDRs, with
// their routes, until a restarted agent no longer names it. Then it is marked like any other.
func (h *handshake) retire(b *block, a netip.Addr, entry ReleaseStatus, hasEntry bool) bool {
	if !b.vacates() || !h.roomToMove || !h.usage.isOwn(a) {
		return false
	}
	if entry != Released {
		if hasEntry { // a refusal, or a mark from before the agent took it
			return false
		}
		if !h.usage.trusted {
			return true
		}
		// Together with the marks of the block's free addresses, so that the agent finds
		// none there when it restarts.
		h.enter(&h.planner.plan.Retire, b, a)
	}
	b.retired++
	return true
}

// findsLeaving reports whether an agent that restarts now could take an address of a block that
// must leave: an address that a pod has left, and that the agent has not agreed to release. A mark
// without an answer does not keep it off, as marks are cleared when an agent restarts: see leave.
func (h *handshake) findsLeaving() bool {
	for a := range h.state.Pool {
		entry := h.state.Release[a]
		if b := h.blocks.blockOf(a); b != nil && b.vacates() && !h.usage.inUse(a) && entry != Ready && entry != Released {
			return true
		}
	}
	return false
}

// isOwn reports whether a is the agent's own address, and no pod's.
func (u *usage) isOwn(a netip.Addr) bool {
	if owner, reported := u.state.Used[a]; !reported && !u.unreported[a].agent || reported && !NamesAgent(owner) {
		return false
	}
	return u.state.Pool[a] == "" && !slices.ContainsFunc(u.state.Pods, func(p Pod) bool { return slices.Contains(p.IPs, a) })
}

// NamesAgent reports whether an owner in the agent's report is the agent itself (Cilium
// v1.20.1, daemon/infraendpoints/infra_ip_allocation.go).
func NamesAgent(owner string) bool {
	switch userOf(owner).name {
	case "router", "health", "ingress":
		return true
	}
	return false
}

// hasRoomToMove reports whether blocks that stay have a free address, in the pool already, for each
// of the agent's own leaving ones, beside the addresses that bound pods wait for. An agent that
// restarts and finds none does not come up.
func (h *handshake) hasRoomToMove() bool {
	moving := 0
	for _, b := range h.blocks.all {
		if b.vacates() {
			moving += b.own
		}
	}
	if moving == 0 {
		return false
	}
	free := 0
	for a, owner := range h.state.Pool {
		if h.state.ours(a) && owner == "" && !h.usage.inUse(a) && !inHandshake(h.state.Release[a]) && h.remains(a) {
			free++
		}
	}
	return free >= moving+h.usage.waiting
}

// remains reports whether a published address remains in the pool after this plan, and for longer:
// else the agent would need to move again, or could not move any more.
func (h *handshake) remains(a netip.Addr) bool {
	b := h.blocks.blockOf(a)
	return b == nil || b.inService() && b.usable(a) && !b.delayEndsSoon(h.planner.input.now)
}
