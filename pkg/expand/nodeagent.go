package expand

import (
	"math"
	"net/netip"
	"slices"
)

// decideForNodeAgent decides for this project's node agent. It is assigned whole blocks, and reports each address in use
// from the node's disk. A leaving block is closed: no further pod gets an address of it, and the node agent takes it off
// the list once no pod has one. So there is no handshake, and nothing but pods to wait for.
func decideForNodeAgent(s *State, input *input) (Plan, Memory) {
	// 1. Determine the node's holdings and needs.
	p := planForNodeAgent(s, input)

	// 2. Grow: first use the blocks that the node already holds, then claim new ones.
	p.fillBlocks()
	covered := p.deficit() <= 0
	p.cancelDrains()
	p.undrain()
	p.relistUsed()
	p.countServedElsewhere()
	p.claim()

	// 3. Shrink: drain blocks that must leave, then reclaim blocks that may.
	p.drainRequested(covered)
	p.returnToOwner()
	p.reclaim(p.removable(), Reclaim)

	// 4. Advance: close leaving blocks, and let returned ones cool down.
	p.drainAgain()
	p.closeLeaving()
	p.clearAll()
	p.coolEmpty()
	p.deleteCooled()

	p.explain(p.obstacleToReturn)
	return p.finish()
}

// planForNodeAgent returns an empty plan for a node agent.
func planForNodeAgent(s *State, input *input) *planner {
	blocks := sortBlocks(s, &input.budget)
	blocks.countListed(s.BlockAssignment)
	usage := countReported(s, blocks)
	blocks.classify(&usage)
	return newPlanner(input, usage, blocks, reportedNeeds(input.policy, &usage, blocks))
}

// countReported counts the demand of a node with a node agent: the addresses of its blocks in use, and the bound pods that
// have none yet. Pods with an address of another of Cilium's pools do not count. An address that only a pod's status names is
// its own if it lies in a block of the node; else it went with its sandbox.
func countReported(s *State, blocks *blocks) usage {
	w := s.BlockAssignment
	u := usage{state: s, reported: w.Reported, trusted: w.Reported} // the node's disk is the truth, also right after a restart
	isOfNode := func(a netip.Addr) bool { return s.ours(a) && (blocks.blockOf(a) != nil || w.isPublished(a)) }
	for a, owner := range s.Used {
		if isOfNode(a) {
			u.countUsed(owner)
		}
	}
	known := u.knownOwners()
	waiting := 0
	for _, pod := range s.Pods {
		_, reported := known[pod.Name]
		for _, a := range pod.IPs {
			if _, used := s.Used[a]; isOfNode(a) && !used {
				u.learn(a, user{name: pod.Name})
				u.demand++
			}
		}
		if !pod.OfOtherPool && !reported && !slices.ContainsFunc(pod.IPs, isOfNode) && !w.familyUnused() {
			waiting++
		}
	}
	u.waiting = u.admitted(waiting)
	u.demand += u.waiting
	return u
}

// reportedNeeds returns the needs of a node with a node agent. A block is one line of its CiliumNode, so only
// max-allocate caps it.
func reportedNeeds(policy Policy, u *usage, blocks *blocks) needs {
	n := addressNeeds(policy, u, blocks)
	n.hardCap = math.MaxInt32
	if most := limit(u.state.Limits.MaxAllocate); most > 0 {
		n.hardCap = most
	}
	w := u.state.BlockAssignment
	if w.NoPreallocation { // no reserve
		n.forPods = u.demand
		n.target = max(u.demand+limit(u.state.Expected), limit(w.Requested))
		n.targetWithoutReserve = n.target
	}
	if w.followsRequest() {
		n.target = limit(w.Requested)
		n.targetWithoutReserve = n.target
	}
	return n
}

// followsRequest reports whether Cilium's agent still runs in multi-pool mode on the node. Such an agent returns the blocks
// beyond its request each minute.
func (w *BlockAssignment) followsRequest() bool {
	return w.NodeAgent && !w.Reported && w.Requested > 0
}

// countListed counts the addresses of listed blocks, and of listed CIDRs that are no blocks.
func (bs *blocks) countListed(w *BlockAssignment) {
	bs.foreign = w.Foreign
	bs.published = w.Foreign
	for _, b := range bs.all {
		if b.Listed {
			b.usableIn = b.Size
			b.allocatable = b.Size
			b.published = max(1, b.usableIn)
			bs.published += b.usableIn
			continue
		}
		for _, p := range w.Assigned {
			if p.Overlaps(b.CIDR) {
				b.published++ // as part of another
			}
		}
	}
}

// relistUsed lists blocks of addresses in use that are missing from the list, as after a CiliumNode was deleted. A node
// agent that has reported knows best which are.
func (p *planner) relistUsed() {
	for _, a := range p.lost(p.state.BlockAssignment.isPublished) {
		_, reported := p.state.Used[a]
		if b := p.blocks.blockOf(a); b.published == 0 && b.Size > 0 && (reported || !p.usage.reported) {
			b.assigned = true
		}
	}
}

// returnToOwner drains the blocks of an owner without a pod on the node: its pods elsewhere wait for them.
func (p *planner) returnToOwner() {
	if !p.state.BlockAssignment.OfOwner || p.usage.demand > 0 || !p.usage.reported {
		return
	}
	for _, b := range p.blocks.all {
		if b.inService() && b.reclaimable() && b.change != changeDrain {
			p.drain(b, Reclaim)
		}
	}
}

// closeLeaving closes the listed blocks that leave, and opens the closed blocks that stay. Until the node agent has reported,
// another IPAM may assign addresses of them.
func (p *planner) closeLeaving() {
	for _, b := range p.blocks.all {
		leaves := b.leavesByPlan()
		if p.usage.reported && (b.Listed || b.assigned) && leaves && !b.Parked {
			p.plan.Close = append(p.plan.Close, b.CIDR)
		}
		if b.Parked && !leaves {
			p.plan.Unpark = append(p.plan.Unpark, b.CIDR)
		}
	}
}

// obstacleToReturn returns the obstacle to a block that a node agent returns.
func (p *planner) obstacleToReturn(b *block) (WaitReason, []string) {
	if len(b.byPods) > 0 {
		return WaitPods, b.byPods
	}
	if !p.usage.reported {
		return WaitUnsettled, nil
	}
	return WaitReturn, nil
}

// keepsOne reports whether the node keeps one block although no pod needs it.
func (p *planner) keepsOne() bool {
	w := p.state.BlockAssignment
	return w == nil || !w.NoPreallocation && !w.familyUnused()
}
