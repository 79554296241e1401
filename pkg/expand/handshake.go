package expand

import (
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// handshake advances every address that has a release-ips entry or must leave by one step.
// The agent's side is in Cilium v1.20.1, pkg/ipam/crd.go, updateLocalNodeResource:
//
//	(none) ──Mark──▶ marked ──agent──▶ ready ──AckHold──▶ Remove ──▶ Clear
//	                   │                 │
//	                   └─────────────────┴── in use, or stays: Clear
//
// An agent that does not run the family does not answer marks in its pool: see leaveNotRun.
//
// For the agent's own addresses in a block whose drain was requested, the handshake begins
// differently: see retire.
func (d *decision) handshake() {
	d.roomToMove = d.hasRoomToMove()
	for _, a := range d.walk {
		entry := d.state.Release[a]
		_, published := d.state.Pool[a]
		b := d.blockOf(a)
		switch {
		case b != nil && d.conditionFirst(b):
		case !published:
			d.clearUnpublished(a, entry)
		case b == nil: // foreign: the operator must not touch it
		case !b.leaving(b.usable(a)):
			d.plan.Clear = append(d.plan.Clear, a)
		case d.state.NotRun:
			d.leaveNotRun(a, entry)
		default:
			d.leave(a, entry, b)
		}
	}
}

// conditionFirst reports whether this plan changes the block's phase, so that its addresses
// must wait for the next plan.
func (d *decision) conditionFirst(b *block) bool {
	return b.undrained || b.Phase == ipalloc.CoolingDown && b.drained || d.frees(b)
}

// clearUnpublished deletes the entry of an address that is not in the pool. The agent
// answers a mark of such an address with do-not-release.
func (d *decision) clearUnpublished(a netip.Addr, entry ReleaseStatus) {
	if entry == Marked && !d.passed(&d.memory.MarkedSince, d.old.MarkedSince, a, d.policy.AckTimeout) {
		return
	}
	d.plan.Clear = append(d.plan.Clear, a)
}

// leave advances a published address that must leave by one step. entry is empty if the
// address has none.
func (d *decision) leave(a netip.Addr, entry ReleaseStatus, b *block) {
	free := !d.inUse(a)
	_, stands := d.state.Release[a]
	switch {
	case d.leaveUnread(b, a, entry, stands, free), d.retire(b, a, entry, stands):
		// It keeps its mark, or must no longer be marked; or the agent keeps the address
		// until it restarts.
	case yetToMark(b, entry, stands, free):
		if free && d.trusted {
			d.mark(a)
		}
	case entry == Marked && free && d.trusted:
		// An agent loses its answer if another write of the CiliumNode conflicts with it.
		if d.passed(&d.memory.MarkedSince, d.old.MarkedSince, a, d.policy.AckTimeout) {
			d.plan.Clear = append(d.plan.Clear, a)
		}
	case entry == Ready && free && d.trusted:
		if d.passed(&d.memory.AckedSince, d.old.AckedSince, a, d.policy.AckHold) {
			d.plan.Remove = append(d.plan.Remove, a)
		}
	case entry == Ready && free:
		// The hold starts again once the agent is settled.
	default:
		// It is in use; or a restarting agent could not restore a marked address; or the
		// agent refused; or the state is not part of this handshake.
		d.plan.Clear = append(d.plan.Clear, a)
	}
}

// yetToMark reports whether an address must be marked once it is free: it has no entry, or
// it was retired and the agent has restarted since.
func yetToMark(b *block, entry ReleaseStatus, stands, free bool) bool {
	return !stands || entry == Released && free && b.vacates()
}

// leaveUnread handles an address of a node's first block, which is being replaced, before
// the agent reads it for the first time. It reports whether it handled the address.
func (d *decision) leaveUnread(b *block, a netip.Addr, entry ReleaseStatus, stands, free bool) bool {
	if b.Reason != PoolChanged {
		return false
	}
	if !stands {
		// Mark only before an agent has read the address: otherwise the agent's own address
		// would pin the block for the lifetime of the node.
		if free && d.state.Fresh {
			d.plan.Mark = append(d.plan.Mark, a)
		}
		return true
	}
	// An agent that starts does not use the address: it was marked before.
	return entry == Marked && free && !d.reported
}

// ReportAddress returns an address that is neither in a PodIPPool, which cannot contain
// multicast (this is documentation's: RFC 6676), nor in pool, the CiliumNode's. Whatever
// families it runs, an agent answers a mark of this address with do-not-release and a report
// of all addresses in use (pkg/ipam/crd.go, updateLocalNodeResource, v1.20.1).
func ReportAddress(f ipalloc.Family, pool map[netip.Addr]string) netip.Addr {
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

// leaveNotRun advances an address of a family that the agent does not run by one step. The
// agent assigns it to no pod and does not answer its mark. The mark protects against an agent
// that restarts with the family enabled: it neither assigns nor restores a marked address. An
// agent that restarted just before the mark may not have reported yet. So once the mark has
// stood for AckTimeout, the operator asks the agent for a report. The agent writes the report
// only onto the latest version of its CiliumNode, so by then it has seen the mark; and it
// still does not run the family, or State.NotRun would be unset.
func (d *decision) leaveNotRun(a netip.Addr, entry ReleaseStatus) {
	ready := !d.inUse(a) && d.state.AgentSettled
	marked := entry == Marked || entry == Ready
	answer, asked := d.state.Release[ReportAddress(d.state.Family, d.state.Pool)]
	_, stands := d.state.Release[a]
	switch {
	case !stands && ready:
		d.mark(a)
	case !stands:
		// It may be in use now or soon.
	case !ready || !marked:
		d.plan.Clear = append(d.plan.Clear, a)
	case !d.passed(&d.memory.MarkedSince, d.old.MarkedSince, a, d.policy.AckTimeout):
	case answer == DoNotRelease:
		d.plan.Remove = append(d.plan.Remove, a)
	case !asked:
		d.plan.Ask = true
	}
}

// mark asks the agent to release an address that looks free, unless it may belong to a pod
// that has just been added.
func (d *decision) mark(a netip.Addr) { d.enter(&d.plan.Mark, a) }

// enter adds an address to entries once no pod's address is awaited.
func (d *decision) enter(entries *[]netip.Addr, a netip.Addr) {
	if len(d.awaited) > 0 {
		d.requeueAt(d.now.Add(d.awaitedUntil))
		return
	}
	*entries = append(*entries, a)
}

// passed reports whether a has been in its state for wait according to old. It carries the
// time over to next.
func (d *decision) passed(next *map[netip.Addr]time.Time, old map[netip.Addr]time.Time, a netip.Addr, wait time.Duration) bool {
	since, ok := old[a]
	if !ok {
		since = d.now
	}
	if *next == nil {
		*next = map[netip.Addr]time.Time{}
	}
	(*next)[a] = since
	if d.now.Sub(since) >= wait {
		return true
	}
	d.requeueAt(since.Add(wait))
	return false
}
