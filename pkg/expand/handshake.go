package expand

import (
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// handshake takes every address with a release-ips entry, and every leaving one
// without, one step further. The agent's side is Cilium v1.20.1,
// pkg/ipam/crd.go, updateLocalNodeResource:
//
//	(none) ──Mark──▶ marked ──agent──▶ ready ──AckHold──▶ Remove ──▶ Clear
//	                   │                 │
//	                   └─────────────────┴── in use, or stays: Clear
//
// An agent that does not run the family answers no mark of its pool: see leaveNotRun.
//
// The agent's own addresses in a block that people want back have another beginning:
// see retire.
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
		case b == nil: // foreign: not ours to touch
		case !b.leaving(b.usable(a)):
			d.plan.Clear = append(d.plan.Clear, a)
		case d.state.NotRun:
			d.leaveNotRun(a, entry)
		default:
			d.leave(a, entry, b)
		}
	}
}

// conditionFirst says that the block changes sides in this plan, so that its
// addresses have to wait for the next.
func (d *decision) conditionFirst(b *block) bool {
	return b.undrained || b.Phase == ipalloc.CoolingDown && b.drained || d.frees(b)
}

// clearUnpublished deletes the entry of an address that is not in the pool. The
// agent still answers a mark there, with do-not-release.
func (d *decision) clearUnpublished(a netip.Addr, entry ReleaseStatus) {
	if entry == Marked && !d.passed(&d.memory.MarkedSince, d.old.MarkedSince, a, d.policy.AckTimeout) {
		return
	}
	d.plan.Clear = append(d.plan.Clear, a)
}

// leave takes a published address that has to go one step further. entry is
// empty where none stands.
func (d *decision) leave(a netip.Addr, entry ReleaseStatus, b *block) {
	free := !d.inUse(a)
	_, stands := d.state.Release[a]
	switch {
	case d.leaveUnread(b, a, entry, stands, free), d.retire(b, a, entry, stands):
		// Its mark stands, or must not be set any more; or the agent has it until it
		// restarts.
	case yetToMark(b, entry, stands, free):
		if free && d.trusted {
			d.mark(a)
		}
	case entry == Marked && free && d.trusted:
		// An agent forgets its answer when another change crosses it.
		if d.passed(&d.memory.MarkedSince, d.old.MarkedSince, a, d.policy.AckTimeout) {
			d.plan.Clear = append(d.plan.Clear, a)
		}
	case entry == Ready && free && d.trusted:
		if d.passed(&d.memory.AckedSince, d.old.AckedSince, a, d.policy.AckHold) {
			d.plan.Remove = append(d.plan.Remove, a)
		}
	case entry == Ready && free:
		// The hold restarts once the agent is settled.
	default:
		// In use; or a mark that a restarting agent would not restore past;
		// or a refusal; or a state that is not a step of ours.
		d.plan.Clear = append(d.plan.Clear, a)
	}
}

// yetToMark reports whether an address is to be marked once it is free: it has no entry,
// or the agent that it was retired for has restarted.
func yetToMark(b *block, entry ReleaseStatus, stands, free bool) bool {
	return !stands || entry == Released && free && b.vacates()
}

// leaveUnread takes an address of a node's first block, which is being replaced, through
// the steps that precede its agent's first read. It reports whether one of them applied.
func (d *decision) leaveUnread(b *block, a netip.Addr, entry ReleaseStatus, stands, free bool) bool {
	if b.Reason != PoolChanged {
		return false
	}
	if !stands {
		// Before an agent has read it, and never after: else the agent's own address
		// would pin the block for as long as the node lives.
		if free && d.state.Fresh {
			d.plan.Mark = append(d.plan.Mark, a)
		}
		return true
	}
	// An agent that starts keeps off: it was marked before any agent came.
	return entry == Marked && free && !d.reported
}

// ReportAddress is an address that is in no pool, of the documentation (RFC 5737, RFC 3849).
// An agent answers its mark whatever families it runs, with do-not-release and a report of
// all that it uses (pkg/ipam/crd.go, updateLocalNodeResource, v1.20.1).
func ReportAddress(f ipalloc.Family) netip.Addr {
	if f == ipalloc.IPv6 {
		return netip.MustParseAddr("2001:db8::1")
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, 1})
}

// leaveNotRun takes an address of a family that the agent does not run one step further.
// The agent gives it to no pod and does not answer its mark. The mark is for an agent that
// may restart with the family on: it assigns and restores no marked address. One that
// restarted just before the mark may not have reported yet. So once the mark has stood for
// AckTimeout, the agent is asked for a report. It writes that only on the version of its
// CiliumNode that it has read last, so it knows of the mark by then; and it still does not
// run the family, or State.NotRun were unset.
func (d *decision) leaveNotRun(a netip.Addr, entry ReleaseStatus) {
	ready := !d.inUse(a) && d.state.AgentSettled
	marked := entry == Marked || entry == Ready
	answer, asked := d.state.Release[ReportAddress(d.state.Family)]
	_, stands := d.state.Release[a]
	switch {
	case !stands && ready:
		d.mark(a)
	case !stands:
		// It may be in use, or may be soon.
	case !ready || !marked:
		d.plan.Clear = append(d.plan.Clear, a)
	case !d.passed(&d.memory.MarkedSince, d.old.MarkedSince, a, d.policy.AckTimeout):
	case answer == DoNotRelease:
		d.plan.Remove = append(d.plan.Remove, a)
	case !asked:
		d.plan.Ask = true
	}
}

// mark asks the agent to release an address that looks free, unless it may be
// that of a pod that has just come.
func (d *decision) mark(a netip.Addr) { d.enter(&d.plan.Mark, a) }

// enter adds an address that gets a release entry, once no pod's address is awaited.
func (d *decision) enter(entries *[]netip.Addr, a netip.Addr) {
	if len(d.awaited) > 0 {
		d.requeueAt(d.now.Add(d.awaitedUntil))
		return
	}
	*entries = append(*entries, a)
}

// passed says that a has been in its state for wait, by what old remembers. It
// goes on remembering it in next.
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
