package expand

import (
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// vacates reports whether even the agent's own addresses leave the block: a person has
// requested its drain. Idleness is no reason to have an agent change its addresses.
func (b *block) vacates() bool {
	return b.Phase == ipalloc.Draining && b.Request != None && b.Request != PoolChanged
}

// retire has the agent take another address in place of its own a when it restarts. It
// reports whether a is, or is about to be, retired.
//
// An agent neither restores nor allocates an address whose entry is Released; while it
// runs, it ignores the entry and keeps the address (Cilium v1.20.1, pkg/ipam/crd.go,
// allocate and updateLocalNodeResource). So the address stays in the pool and its
// block in podCIDRs, with their routes, until a restarted agent no longer names it. Then
// it is marked like any other.
func (d *decision) retire(b *block, a netip.Addr, entry ReleaseStatus, stands bool) bool {
	if !b.vacates() || !d.roomToMove || !d.isOwn(a) {
		return false
	}
	switch {
	case entry == Released:
	case stands: // a refusal, or a mark from before the agent took it
		return false
	case !d.trusted:
		return true
	default:
		// Together with the marks of the block's free addresses, so that the agent finds
		// none there when it restarts.
		d.enter(&d.plan.Retire, a)
	}
	b.retired++
	return true
}

// findsLeaving reports whether an agent that restarts now could take an address of a block
// that it has to leave: one that a pod has left, and that the agent has not agreed to give
// up. A mark without an answer does not keep it off, as marks are cleared when an agent
// restarts: see leave.
func (d *decision) findsLeaving() bool {
	for a := range d.state.Pool {
		entry := d.state.Release[a]
		if b := d.blockOf(a); b != nil && b.vacates() && !d.inUse(a) && entry != Ready && entry != Released {
			return true
		}
	}
	return false
}

// isOwn reports whether a is the agent's own address, and no pod's.
func (d *decision) isOwn(a netip.Addr) bool {
	if owner, reported := d.state.Used[a]; !reported && !d.extra[a].agent || reported && !NamesAgent(owner) {
		return false
	}
	return d.state.Pool[a] == "" && !slices.ContainsFunc(d.state.Pods, func(p Pod) bool { return slices.Contains(p.IPs, a) })
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

// hasRoomToMove reports whether blocks that stay have a free address, in the pool
// already, for each of the agent's own that leaves, beside those that bound pods wait
// for. An agent that restarts and finds none does not come up.
func (d *decision) hasRoomToMove() bool {
	moving := 0
	for i := range d.blocks {
		if b := &d.blocks[i]; b.vacates() {
			moving += b.own
		}
	}
	if moving == 0 {
		return false
	}
	free := 0
	for a, owner := range d.state.Pool {
		if d.ours(a) && owner == "" && !d.inUse(a) && !withheld(d.state.Release[a]) && d.remains(a) {
			free++
		}
	}
	return free >= moving+d.waiting
}

// remains reports whether a published address remains in the pool after this plan, and
// for longer: else the agent would have to move again, or could not move any more.
func (d *decision) remains(a netip.Addr) bool {
	b := d.blockOf(a)
	return b == nil || b.serving() && b.usable(a) && !d.leavesSoon(b)
}
