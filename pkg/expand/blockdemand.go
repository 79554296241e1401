package expand

import (
	"math"
	"net/netip"
	"slices"
	"time"
)

// BlockDemand is what an agent holds and requests that is assigned whole blocks
// instead of addresses (Cilium v1.20.1, pkg/ipam/multipool_manager.go). It allocates
// from every assigned block, and removes a block from the list itself once no address
// of it is in use and the others cover its request. So there is no handshake, and a
// listed block serves whatever is planned for it. The agent's request is final: it
// would return any surplus at once.
type BlockDemand struct {
	// Assigned are the CIDRs assigned to the agent. Those that are not blocks are
	// foreign.
	Assigned []netip.Prefix
	// Foreign is how many addresses the foreign ones have.
	Foreign int
	// Reported says that the agent has published its request. Until then a block that
	// is not listed was lost rather than returned.
	Reported bool
	// Requested is how many addresses it requests: those in use, those that pods
	// wait for, and its reserve. 0 if Reported: it does not need the family.
	Requested int
	// OnDemand says that the agent keeps no reserve and requests addresses once pods
	// need them. Requested 0 does not mean then that it does not need the family.
	OnDemand bool
	// Fixed says that it is assigned one block, before it starts, for the lifetime
	// of the node.
	Fixed bool
	// Runs are the CIDRs that an agent with a fixed block runs with though Assigned is
	// empty: those of an earlier Node of its name.
	Runs []netip.Prefix
}

// isPublished reports whether the agent may assign a to pods.
func (d *decision) isPublished(a netip.Addr) bool {
	if d.state.BlockDemand == nil {
		_, there := d.state.Pool[a]
		return there
	}
	return slices.ContainsFunc(d.state.BlockDemand.Assigned, func(p netip.Prefix) bool { return p.Contains(a) })
}

// countBlockDemand sets the demand of a node whose agent reports no addresses: its own,
// those of pods, and one for each recent pod that has none yet. A pod without one
// for long hangs before it requests one; once it does, the agent's request includes
// it. Pods with an address of another of Cilium's pools do not count, nor do those
// that the agent has lost.
func (d *decision) countBlockDemand() {
	d.reported = d.state.BlockDemand.Reported
	d.trusted = d.state.AgentSettled && d.reported
	for a, owner := range d.state.Used {
		if d.ours(a) && d.isOfNode(a) && !d.lostByAgent(a) {
			d.plan.Demand++
			d.countOwn(owner)
		}
	}
	waiting := 0
	for _, pod := range d.state.Pods {
		switch here, fresh := d.countsPod(pod); {
		case here:
			d.plan.Demand++
		case fresh:
			waiting++
		case !slices.ContainsFunc(pod.IPs, d.ours) && !d.useless() && !d.state.OtherFamilyFull:
			d.hanging++
		}
	}
	d.waiting = d.admitted(waiting)
	d.plan.Demand += d.waiting
}

// reportHanging adds the pods that have waited for long to the demand, for reports alone: the
// agent has no address for them, and requests more than it has, unless its block is fixed. A
// closed block makes them count anyway: see closeBlocks.
func (d *decision) reportHanging() {
	lacks := d.state.BlockDemand.Fixed || d.target > d.plan.Capacity
	if d.shut > 0 || d.plan.Demand < d.plan.Capacity || !lacks {
		return
	}
	d.plan.Demand += d.admitted(d.hanging)
	d.plan.Shortage = max(0, d.plan.Demand-d.plan.Capacity-d.plan.Claim.Room)
}

// countsPod reports whether a pod has an address of the node, or is recent and has
// none yet. It learns its addresses.
func (d *decision) countsPod(pod Pod) (here, fresh bool) {
	has := false
	for _, a := range pod.IPs {
		if !d.ours(a) {
			continue
		}
		has = true
		if d.isOfNode(a) {
			here = here || !d.lostByAgent(a) && !d.isStranded(a)
			d.learn(a, user{name: pod.Name})
		}
	}
	return here, !has && !d.useless() && d.now.Before(pod.Seen.Add(d.policy.AckTimeout))
}

// useless reports whether the agent does not need the family.
func (d *decision) useless() bool {
	w := d.state.BlockDemand
	return w.Reported && w.Requested == 0 && !w.OnDemand
}

// isOfNode reports whether a lies in a block of the node, or in a CIDR assigned to its agent.
func (d *decision) isOfNode(a netip.Addr) bool { return d.blockOf(a) != nil || d.isPublished(a) }

// setBlockTarget covers the agent's request, and bound pods it has not seen yet. The
// policy's reserve counts only until the agent has reported: it has a reserve of its
// own (--ipam-multi-pool-pre-allocation).
func (d *decision) setBlockTarget() {
	w, demand, requested := d.state.BlockDemand, d.plan.Demand+d.shut, limit(d.state.BlockDemand.Requested)
	if d.shut > 0 && d.state.OtherFamilyFull {
		// Pods that find no address beside a closed block make the agent request some. Once
		// they have found one they fail for the other family, and the agent returns it.
		requested = 0
	}
	switch {
	case w.Fixed && len(w.Assigned) > 0:
		// It has what it can have.
	case len(w.Runs) > 0:
		// It gets what it runs with, or nothing.
	case w.Fixed:
		d.target = 1
	case w.OnDemand:
		d.target = max(demand, requested)
	case !w.Reported:
		d.target = d.withReserve(demand)
	case !d.useless():
		d.target = max(agentFloor, demand, requested)
	}
	d.hardCap = math.MaxInt32 // a block takes as little room as a podCIDR
	if most := limit(d.state.Limits.MaxAllocate); most > 0 {
		d.hardCap = most + d.shut
	}
}

// classifyAssigned sorts what is published and in use under its block.
func (d *decision) classifyAssigned() {
	d.foreign, d.published = d.state.BlockDemand.Foreign, d.state.BlockDemand.Foreign
	for i := range d.blocks {
		b := &d.blocks[i]
		if b.Leftover && (b.Listed || slices.Contains(d.old.Assigned, b.CIDR)) {
			d.memory.Assigned = append(d.memory.Assigned, b.CIDR)
		}
		if b.Listed {
			b.held, b.open = len(b.Usable), len(b.Usable)
			b.published = max(1, b.held)
			d.published += b.held
			continue
		}
		for _, p := range d.state.BlockDemand.Assigned {
			if p.Overlaps(b.CIDR) {
				b.published++ // as part of another
			}
		}
	}
}

// assignBlocks publishes the blocks in service that the node needs, and all of them
// until the agent has reported. The agent has returned a block it does not need, or
// was never assigned it.
func (d *decision) assignBlocks() {
	d.plan.Capacity = d.foreign
	for i := range d.blocks {
		d.plan.Capacity += d.blocks[i].open
		d.blocks[i].counted = true
	}
	if d.state.BlockDemand.Fixed {
		d.assignFixed()
		return
	}
	for i := range d.blocks {
		b := &d.blocks[i]
		needed := d.deficit() > 0 || !d.state.BlockDemand.Reported
		if b.serving() && b.published == 0 && !b.closed && needed && d.room() > 0 {
			d.assignBlock(b)
		}
	}
}

func (d *decision) assignBlock(b *block) {
	b.publish = slices.Clone(b.Usable)
	d.expect(b, len(b.Usable))
}

// givenBack reports whether the agent has returned a block in service that the node
// does not need.
func (d *decision) givenBack(b *block) bool {
	return d.state.BlockDemand != nil && d.state.BlockDemand.Reported && len(b.publish) == 0
}

// mayHave reports whether an agent may allocate from a block that is not listed,
// because one that is assigned addresses still runs. Such an agent removes nothing
// from the list, so a block that was listed once was returned.
func (d *decision) mayHave(b *block) bool {
	return b.Leftover && !slices.Contains(d.memory.Assigned, b.CIDR)
}

// restoreLeftovers lists the blocks that an agent which is assigned addresses may
// have, draining or not: its successor, which is assigned whole blocks, could not
// restore their pods otherwise.
func (d *decision) restoreLeftovers() {
	for i := range d.blocks {
		b := &d.blocks[i]
		if d.mayHave(b) && b.published == 0 && len(b.publish) == 0 && b.keepsUsed() {
			d.assignBlock(b)
		}
	}
}

// clearAll deletes leftover release entries: an agent that is assigned whole blocks
// answers none. A block about to cool down keeps its entries until then.
func (d *decision) clearAll() {
	for _, a := range d.walk {
		if b := d.blockOf(a); b == nil || !d.conditionFirst(b) {
			d.plan.Clear = append(d.plan.Clear, a)
		}
	}
}

// lostByAgent reports whether a belongs to a pod that its agent did not restore: the
// agent returned a's block after it was assigned again. It would return it each time,
// and restores no pod before it restarts.
func (d *decision) lostByAgent(a netip.Addr) bool {
	w, since := d.state.BlockDemand, d.old.Restored[a]
	return w != nil && w.Reported && !since.IsZero() && !d.isPublished(a)
}

// givesBackWithin is how long an agent takes at most to return what it does not need:
// it reconciles each minute, and later after a write conflict (Cilium v1.20.1,
// pkg/ipam/multipool_manager.go, refreshPoolInterval).
const givesBackWithin = 5 * time.Minute

// isStranded reports whether a lies in a block that is not listed and cannot be. If its
// agent has the pod, it requests the address itself.
func (d *decision) isStranded(a netip.Addr) bool {
	b := d.blockOf(a)
	return b != nil && (b.Conflict || b.Orphaned) && !d.isPublished(a)
}

// recallRestored carries over the addresses for which blocks were assigned again. A
// block that an agent has kept for long, it needs.
func (d *decision) recallRestored() {
	for a, since := range d.old.Restored {
		if !d.inUse(a) {
			continue
		}
		if d.isPublished(a) {
			if since.IsZero() {
				since = d.now
			}
			if d.now.Sub(since) >= givesBackWithin {
				continue
			}
			d.requeueAt(since.Add(givesBackWithin))
		}
		d.rememberRestored(a, since)
	}
}

func (d *decision) rememberRestored(a netip.Addr, since time.Time) {
	if d.memory.Restored == nil {
		d.memory.Restored = map[netip.Addr]time.Time{}
	}
	d.memory.Restored[a] = since
}
