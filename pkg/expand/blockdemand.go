package expand

import (
	"math"
	"net/netip"
	"slices"
	"time"
)

// BlockDemand is what an agent has and asks for that is told whole blocks instead of
// addresses (Cilium v1.20.1, pkg/ipam/multipool_manager.go). It gives out the
// addresses of every block it was told, and takes a block off the list by
// itself once nothing of it is in use and the others cover what it asks for. So
// there is no handshake, and a block that is listed serves whatever is planned
// for it. What the agent asks for holds: it would give back at once what it got
// beyond that.
type BlockDemand struct {
	// Assigned are the CIDRs that the agent was told. Those that are no blocks are
	// foreign.
	Assigned []netip.Prefix
	// Foreign is how many addresses the foreign ones have.
	Foreign int
	// Reported says that the agent has said what it asks for. Until then a block that
	// is not listed was lost rather than given back.
	Reported bool
	// Requested is how many addresses it asks for: those in use, those that pods
	// wait for, and its reserve. 0 where it was heard: it has no use for the family.
	Requested int
	// OnDemand says that nothing is kept free: the agent asks for addresses once pods
	// want them. Requested 0 does not say that it has no use for the family.
	OnDemand bool
	// Fixed says that it is told one block, before it starts, and keeps that as
	// long as the node is there.
	Fixed bool
}

// isPublished says that the agent may give a to pods.
func (d *decision) isPublished(a netip.Addr) bool {
	if d.state.BlockDemand == nil {
		_, there := d.state.Pool[a]
		return there
	}
	return slices.ContainsFunc(d.state.BlockDemand.Assigned, func(p netip.Prefix) bool { return p.Contains(a) })
}

// countWhole sets the demand of a node whose agent reports no addresses: its own,
// those of pods, and one for each pod that has come a short while ago and has
// none yet. One that has none for long hangs before it asks for one; if it does
// ask, the agent tells. Pods with an address of another pool of Cilium's do not
// count, nor do those that the agent has lost.
func (d *decision) countWhole() {
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
		switch here, fresh := d.countsWhole(pod); {
		case here:
			d.plan.Demand++
		case fresh:
			waiting++
		}
	}
	d.plan.Demand += d.admitted(waiting)
}

// countsWhole says whether a pod has an address of the node, or has come a short
// while ago and has none yet. It learns its addresses.
func (d *decision) countsWhole(pod Pod) (here, fresh bool) {
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

// useless says that the agent has no use for the family.
func (d *decision) useless() bool {
	w := d.state.BlockDemand
	return w.Reported && w.Requested == 0 && !w.OnDemand
}

// isOfNode says that a lies in a block of the node, or in what its agent was told.
func (d *decision) isOfNode(a netip.Addr) bool { return d.blockOf(a) != nil || d.isPublished(a) }

// setWholeTarget asks for what the agent asks for, and for pods that it has yet
// to hear of. What a policy keeps free counts only until the agent has spoken:
// it has a reserve of its own (--ipam-multi-pool-pre-allocation).
func (d *decision) setWholeTarget() {
	w, demand, percent := d.state.BlockDemand, d.plan.Demand, d.policy.ExpandPercent
	switch {
	case w.Fixed && len(w.Assigned) > 0:
		// It has what it can have.
	case w.Fixed:
		d.target = 1
	case w.OnDemand:
		d.target = max(demand, limit(w.Requested))
	case !w.Reported:
		d.target = max(agentFloor, demand+d.policy.MinFree, (demand*100+percent-1)/percent)
	case !d.useless():
		d.target = max(agentFloor, demand, limit(w.Requested))
	}
	d.hardCap = math.MaxInt32 // a block takes as little room as a podCIDR
	if most := limit(d.state.Limits.MaxAllocate); most > 0 {
		d.hardCap = most
	}
}

// surveyWhole sorts what is published and in use under its block.
func (d *decision) surveyWhole() {
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

// fillWhole publishes the blocks in service that the node needs, and all of them
// while the agent has not been heard. One that it does not need it has given
// back, or was never told.
func (d *decision) fillWhole() {
	d.plan.Capacity = d.foreign
	for i := range d.blocks {
		d.plan.Capacity += d.blocks[i].open
	}
	for i := range d.blocks {
		b := &d.blocks[i]
		needed := d.deficit() > 0 || !d.state.BlockDemand.Reported && !d.state.BlockDemand.Fixed
		if b.serving() && b.published == 0 && needed && d.room() > 0 {
			d.publishWhole(b)
		}
	}
}

func (d *decision) publishWhole(b *block) {
	b.publish = slices.Clone(b.Usable)
	d.expect(b, len(b.Usable))
}

// givenBack says that a block in service is one that the agent no longer has and
// the node does not need.
func (d *decision) givenBack(b *block) bool {
	return d.state.BlockDemand != nil && d.state.BlockDemand.Reported && len(b.publish) == 0
}

// mayHave says that an agent may give out addresses of a block that is not listed,
// as it runs that is told addresses. Of what was listed it takes nothing off, so
// once that has happened the block was given back.
func (d *decision) mayHave(b *block) bool {
	return b.Leftover && !slices.Contains(d.memory.Assigned, b.CIDR)
}

// restoreLeftovers lists the blocks that an agent may have which is told addresses,
// whether they drain or not: the one that is told whole blocks and comes after it
// could not restore their pods.
func (d *decision) restoreLeftovers() {
	for i := range d.blocks {
		b := &d.blocks[i]
		if d.mayHave(b) && b.published == 0 && len(b.publish) == 0 && b.keepsUsed() {
			d.publishWhole(b)
		}
	}
}

// superseded says that a block is one too many: the node was told another one, as
// this one's range was draining when its Node came back. An agent that is told one
// block can never have a second, so this one goes, and nothing brings it back.
func (d *decision) superseded(b *block) bool {
	w := d.state.BlockDemand
	return w != nil && w.Fixed && len(w.Assigned) > 0 && b.published == 0 && !b.Listed
}

// clearAll deletes what stands of handshakes: an agent that is told whole blocks
// answers none. A block that is on its way to cool down keeps its entries until
// then.
func (d *decision) clearAll() {
	for _, a := range d.walk {
		if b := d.blockOf(a); b == nil || !d.conditionFirst(b) {
			d.plan.Clear = append(d.plan.Clear, a)
		}
	}
}

// lostByAgent says that a is that of a pod that its agent did not restore: told its
// block again for a's sake, the agent had no use for it. It would give it back each
// time, and restores no pod before it starts anew.
func (d *decision) lostByAgent(a netip.Addr) bool {
	w, since := d.state.BlockDemand, d.old.Restored[a]
	return w != nil && w.Reported && !since.IsZero() && !d.isPublished(a)
}

// givesBackWithin is how long an agent takes at most to give back what it has no use
// for: it looks each minute, and later where another's write crosses its own (Cilium
// v1.20.1, pkg/ipam/multipool_manager.go, refreshPoolInterval).
const givesBackWithin = 5 * time.Minute

// isStranded says that a lies in a block that is not listed and cannot be. If its agent
// has the pod, it asks for the address itself.
func (d *decision) isStranded(a netip.Addr) bool {
	b := d.blockOf(a)
	return b != nil && (b.Conflict || b.Orphaned) && !d.isPublished(a)
}

// recallRestored goes on remembering for which addresses blocks were told again. What
// an agent has kept for long it has use for.
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
