package expand

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// fillBlocks publishes the missing addresses of blocks in service, lowest first, and sets the
// capacity.
func (p *planner) fillBlocks() {
	p.plan.Capacity = p.blocks.openCapacity()
	for _, b := range p.blocks.all {
		if b.inService() && b.usableIn < b.Count() && !b.Unwritable {
			p.fillBlock(b)
		}
	}
}

// fillBlock counts an address with a release entry as one to publish, but does not publish it: back
// in the pool it would be lost to the node until the entry goes.
func (p *planner) fillBlock(b *block) {
	if b.Size > 0 { // of a node agent, or of a node without a CiliumNode
		w := p.state.BlockAssignment
		if w != nil && w.followsRequest() && p.deficit() <= 0 {
			return
		}
		b.assigned = w != nil && p.room() > 0
		p.expect(b, min(b.Size, p.room()))
	}
	for _, a := range b.Usable {
		if p.room() == 0 {
			return
		}
		if _, published := p.state.Pool[a]; published || p.blocks.blockOf(a) != b {
			continue
		}
		p.expect(b, 1)
		if _, hasEntry := p.state.Release[a]; !hasEntry {
			b.publish = append(b.publish, a)
		}
	}
}

// expect counts n addresses of b that this or a later plan publishes.
func (p *planner) expect(b *block, n int) {
	b.toPublish += n
	p.blocks.published += n
	p.plan.Capacity += n
}

// room is the number of addresses that the pool may still take. MaxAddresses and max-allocate cap
// all published addresses, except replacements for a block that must go. max-above-watermark caps
// only the capacity, or a block that leaves would stand in the way of its replacement.
func (p *planner) room() int {
	room := max(p.needs.hardCap-p.blocks.published, p.roomBeyondCaps())
	if above := limit(p.state.Limits.MaxAboveWatermark); above > 0 {
		room = min(room, p.needs.target+above-p.plan.Capacity)
	}
	return max(room, 0)
}

// roomBeyondCaps is the number of addresses that may be published beyond the caps, in place of
// addresses in blocks that must go: as pods need and no more, or the CiliumNode would hold two
// large blocks at once. The rest follows as the old addresses leave. While blocks leave, the object
// stays within twice its limit.
func (p *planner) roomBeyondCaps() int {
	leaving := 0
	for _, b := range p.blocks.all {
		if b.mustLeave() {
			leaving += b.published
		}
	}
	if leaving == 0 {
		return 0
	}
	return min(
		min(p.needs.forPods, p.needs.hardCap)-p.plan.Capacity,
		p.needs.hardCap-(p.blocks.published-leaving),
		2*p.input.policy.MaxAddresses-p.blocks.published,
	)
}

// deficit is the number of addresses the node lacks, within its caps.
func (p *planner) deficit() int { return min(p.needs.target, p.needs.hardCap) - p.plan.Capacity }

// cancelDrains returns blocks to service, beyond any cap on blocks, once the reason they
// left no longer holds.
func (p *planner) cancelDrains() {
	for _, b := range p.blocks.all {
		if b.drainEnds() {
			p.putBack(b)
		}
	}
}

// undrain takes back as many leaving blocks as the deficit needs.
func (p *planner) undrain() {
	if p.deficit() <= 0 {
		return
	}
	var returning []*block
	for _, b := range p.blocks.all {
		if b.mayReturn() && !p.closed.contains(b) {
			returning = append(returning, b)
		}
	}
	slices.SortFunc(returning, func(a, b *block) int {
		return cmp.Or(
			cmp.Compare(a.Phase, b.Phase),
			cmp.Compare(b.published, a.published),
			a.CIDR.Compare(b.CIDR),
		)
	})
	for _, b := range returning {
		if p.deficit() <= 0 || p.blocks.inService() >= p.input.policy.MaxBlocks {
			return
		}
		if b.allocatable > 0 || b.Count() > b.usableIn && p.room() > 0 {
			p.putBack(b)
		}
	}
}

// putBack returns a block to service. A stuck one counts once that has been written.
func (p *planner) putBack(b *block) {
	b.change = changeUndrain
	p.plan.Undrain = append(p.plan.Undrain, b.CIDR)
	if b.Unwritable {
		return
	}
	if !b.assignment.whole {
		p.plan.Capacity += b.allocatable
	}
	p.expect(b, min(b.Count()-b.usableIn, p.room()))
}

// reserveWait is the time after which a node looks again if it claims no reserve because pods
// elsewhere wait for blocks.
const reserveWait = time.Minute

// toClaim is the number of addresses the node should claim. The replacement of a block that must go
// is no reserve.
func (p *planner) toClaim() int {
	deficit := p.deficit()
	if !p.state.Scarce || deficit <= 0 || slices.ContainsFunc(p.blocks.all, (*block).mustLeave) {
		return deficit
	}
	needed := min(deficit, p.needs.targetWithoutReserve-p.plan.Capacity)
	if needed < deficit {
		p.requeueLater()
	}
	return needed
}

// claim requests the rest of the deficit at once: a burst of pods must not wait
// for one block after the other.
func (p *planner) claim() {
	growth := 0
	deficit := p.toClaim()
	room := p.room()
	blocks := p.input.policy.MaxBlocks - p.blocks.inService()
	if deficit > 0 && blocks > 0 && room > 0 {
		growth = room
		p.plan.Claim = Claim{Addresses: min(deficit, room), Blocks: blocks, Room: room}
	}
	if p.state.Pins > 0 && p.state.BlockAssignment == nil && !p.state.FamilyDisabled && room > 0 { // an agent returns a whole block that it does not need
		p.plan.Claim.Pins = p.state.Pins
		p.plan.Claim.Room = room
	}
	p.plan.Shortage = max(0, p.usage.demand+p.closed.free-p.plan.Capacity-growth-p.plan.ServedElsewhere)
}

// countServedElsewhere counts the part of the demand that is met by addresses outside the capacity:
// addresses in use in blocks that leave or in no block, and all addresses of a block still in
// service that must go. Without it a drain with pods that run on would look like a shortage.
func (p *planner) countServedElsewhere() {
	if p.usage.demand <= p.plan.Capacity {
		return
	}
	n := 0
	for _, b := range p.blocks.all {
		if b.fate == fateMustLeave {
			n += b.allocatable
		}
	}
	for a := range p.state.Used {
		ofOthers := p.state.BlockAssignment != nil && p.blocks.blockOf(a) == nil // another Cilium pool, or a CIDR that counts whole
		if p.state.ours(a) && p.state.Pool[a] == "" && !ofOthers && !p.counted(a) {
			n++
		}
	}
	p.plan.ServedElsewhere = n
}

// counted says that a is part of the capacity, or of the open addresses of a block that must leave.
func (p *planner) counted(a netip.Addr) bool {
	b := p.blocks.blockOf(a)
	if b == nil {
		_, published := p.state.Pool[a]
		return published && !inHandshake(p.state.Release[a])
	}
	if !b.inService() && b.fate != fateMustLeave {
		return false
	}
	_, published := p.state.Pool[a]
	return b.usable(a) && (published || b.Size > 0 && b.Listed || b.inService())
}

// restoreUsed publishes addresses in use that have lost their place in the pool,
// as when a CiliumNode was deleted in the middle of a drain: without it their
// pods are not restored when the agent restarts. That an address is reserved or
// its block drains is no reason against it; no cap is, either.
func (p *planner) restoreUsed() {
	inPool := func(a netip.Addr) bool {
		_, published := p.state.Pool[a]
		return published
	}
	for _, a := range p.lost(inPool) {
		p.blocks.restore(a)
	}
}

// lost are the addresses in use that can be restored, sorted, except addresses that the agent has
// or must not get again.
func (p *planner) lost(except func(netip.Addr) bool) []netip.Addr {
	var lost []netip.Addr
	add := func(a netip.Addr) {
		_, hasEntry := p.state.Release[a]
		if !p.state.ours(a) || hasEntry || except(a) {
			return
		}
		if b := p.blocks.blockOf(a); b != nil && b.keepsUsed() {
			lost = append(lost, a)
		}
	}
	for a := range p.state.Used {
		add(a)
	}
	for a := range p.usage.unreported {
		add(a)
	}
	slices.SortFunc(lost, netip.Addr.Compare)
	return lost
}

// restore publishes an address in use, unless the plan does so already.
func (bs *blocks) restore(a netip.Addr) {
	b := bs.blockOf(a)
	if position, found := slices.BinarySearchFunc(b.publish, a, netip.Addr.Compare); !found {
		b.publish = slices.Insert(b.publish, position, a)
		bs.published++
	}
}
