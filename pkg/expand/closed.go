package expand

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// closedBlocks are the blocks that an agent has closed to new pods, with the evidence. The zero value has none.
type closedBlocks struct {
	evidence map[netip.Prefix]evidence
	// free counts the free addresses of listed closed blocks.
	free int
	// notForAddresses are the stuck pods that wait for another reason than addresses. retryAt is when the
	// first of them is tried again.
	notForAddresses map[string]bool
	retryAt         time.Time
	// freeSince and witness are of the next Memory.
	freeSince map[string]time.Time
	witness   string
}

// evidence shows whether an agent has closed a block.
type evidence struct {
	// closed: the agent allocates no address of the block to a new pod.
	closed bool
	// inferred is the plan's record of that if it was not observed; zero: none. disproved: an earlier one
	// is wrong.
	inferred  Closed
	disproved bool
}

// contains reports whether a block is closed.
func (c *closedBlocks) contains(b *block) bool { return c.evidence[b.CIDR].closed }

// add adds a block that was observed, or inferred, to be closed.
func (c *closedBlocks) add(b *block, inferred Closed) {
	found := c.evidence[b.CIDR]
	found.closed = true
	found.inferred = inferred
	remember(&c.evidence, b.CIDR, found)
	if b.Listed {
		c.free += max(0, b.allocatable-b.users)
	}
}

// findClosed finds the blocks that the agent has closed, from records, from parkings that are not recorded
// yet, and from pods that wait although blocks have free addresses.
func (w *blockShare) findClosed(u *usage) closedBlocks {
	closed := closedBlocks{}
	for _, b := range w.blocks.all {
		parking := w.input.memory.Parked[b.CIDR]
		if w.state.isClosed(b.Block) || w.state.closedSince(b.Block, parking) && !w.state.hasNewer(b.CIDR, parking.Since) {
			closed.add(b, Closed{})
		}
		b.assignment.notCompacted = w.notCompacted(b, closed.contains(b))
	}
	if closed.free > 0 || w.assignment.MayHaveClosed {
		w.findNotForAddresses(&closed, u)
	}
	w.judgeInferred(&closed)
	if w.inferClosed(&closed, u) { // the stuck pods wait for just that
		closed.freeSince = nil
		closed.notForAddresses = nil
	}
	return closed
}

// countStuck counts the stuck pods that wait for addresses beside closed blocks. The agent counts on the free
// addresses of these all the same: it requests too little, and would return their replacement. So pods that do
// not fit into the other blocks raise the target, and they alone; also pods that have waited for long, as they
// may wait for just that, unless they lack an address of the other family or wait for another reason.
func (u *usage) countStuck(closed *closedBlocks) {
	if closed.free == 0 {
		return
	}
	stuck := u.admitted(len(u.stuck) - len(closed.notForAddresses))
	u.waiting += stuck
	u.demand += stuck
}

// triedFor is the time of several attempts of the kubelet to start a pod: one every 10 to 15 s
// (pkg/kubelet/pod_workers.go, backOffPeriod).
const triedFor = 2 * time.Minute

// hangsFor is the time after which a pod that asked its agent for no address, as far as is known, counts
// as a sign of closed blocks: most pods that wait for a Secret or a volume get it sooner.
const hangsFor = time.Hour

// findNotForAddresses finds the stuck pods that wait for another reason than addresses: one was free beside
// the closed blocks, several attempts of the kubelet ago. The agent returns a block claimed for
// such a pod, and the node would claim another one, over and over. But the agent may have returned
// it before the pod's next attempt, so the pod is tried again, later each time.
func (w *blockShare) findNotForAddresses(closed *closedBlocks, u *usage) {
	free := w.blocks.freeElsewhere(closed, nil) + w.assignment.Foreign
	for _, pod := range u.stuck {
		begin, known := w.input.memory.FreeSince[pod.Name]
		known = known && !begin.Before(pod.Seen)
		retry := longer(begin, pod, givesBackWithin)
		switch {
		case free <= 0 && (!known || !w.input.now.Before(retry)):
			continue
		case !known:
			begin = w.input.now
		case !w.input.now.Before(begin.Add(triedFor)):
			remember(&closed.notForAddresses, pod.Name, true)
			if free <= 0 && (closed.retryAt.IsZero() || retry.Before(closed.retryAt)) {
				closed.retryAt = retry
			}
		}
		remember(&closed.freeSince, pod.Name, begin)
	}
}

// freeElsewhere is the number of free addresses of listed blocks that are not closed, except one block, which may
// be nil.
func (bs *blocks) freeElsewhere(closed *closedBlocks, except *block) int {
	free := 0
	for _, b := range bs.all {
		if b != except && b.Listed && !closed.contains(b) {
			free += b.allocatable - b.users
		}
	}
	return free
}

// longer returns when to draw a conclusion from a pod that found a free address at that time: each time
// later.
func longer(begin time.Time, pod Pod, least time.Duration) time.Time {
	return begin.Add(max(least, begin.Sub(pod.Seen)))
}

// requestsMore reports whether the agent requests more addresses than for its users and its reserve: pods asked
// it for one in vain.
func (w *blockShare) requestsMore(u *usage) bool {
	known := w.assignment.PreAllocation > 0 || w.assignment.NoPreallocation
	return known && w.assignment.Requested > RequestFor(u.demand, w.assignment.PreAllocation)
}

// judgeInferred confirms or ends what was inferred from a pod that waited. Its address elsewhere, once there
// was one, confirms it. A later pod's address of the block, the pod's end, or a pod that hangs all the same
// disproves it: else the block's free addresses would be lost until the agent restarts.
func (w *blockShare) judgeInferred(closed *closedBlocks) {
	for _, b := range w.blocks.all {
		if !b.Closed.Inferred || !w.state.hasClosed(b.Block) || !b.Listed {
			continue
		}
		waits := false
		elsewhere := false
		for _, pod := range w.state.Pods {
			if pod.Created.Before(b.Closed.Since) {
				continue
			}
			elsewhere = elsewhere || pod.Name == w.input.memory.Witness && slices.ContainsFunc(pod.IPs, w.isElsewhere)
			waits = waits || !slices.ContainsFunc(pod.IPs, w.state.ours) && !closed.notForAddresses[pod.Name]
		}
		closed.witness = w.input.memory.Witness
		found := closed.evidence[b.CIDR]
		if elsewhere {
			found.inferred = Closed{Agent: b.Closed.Agent, Since: b.Closed.Since}
		}
		found.disproved = !elsewhere && !waits || w.state.hasNewer(b.CIDR, b.Closed.Since)
		remember(&closed.evidence, b.CIDR, found)
	}
}

// isElsewhere reports whether a is of the family, and of no block that was inferred to be closed.
func (w *blockShare) isElsewhere(a netip.Addr) bool {
	b := w.blocks.blockOf(a)
	return w.state.ours(a) && (b == nil || !b.Closed.Inferred)
}

// inferClosed closes the blocks with free addresses if a pod has got none of these for minutes, nor
// has a later one. It reports whether there are any. A pod closes no other blocks later, as it may hang
// for another reason.
func (w *blockShare) inferClosed(closed *closedBlocks, u *usage) bool {
	agent := u.steadyAgent()
	witness := w.stuckDespiteFree(closed, u, agent)
	inferred := Closed{Agent: agent, Since: witness.Created, Inferred: true}
	if !w.assignment.MayHaveClosed || w.assignment.Foreign > 0 || inferred.Agent == "" || inferred.Since.IsZero() {
		return false
	}
	var free []*block
	for _, b := range w.blocks.all {
		if !b.Listed || closed.contains(b) || b.allocatable <= b.users {
			continue
		}
		if w.state.hasNewer(b.CIDR, inferred.Since) {
			return false
		}
		free = append(free, b)
	}
	for _, b := range free {
		closed.add(b, inferred)
		closed.witness = witness.Name
	}
	return len(free) > 0
}

// stuckDespiteFree is the newest pod that has waited for long beside free addresses, and from which nothing was
// inferred yet; zero: there is none. Minutes are long if the agent was asked for an
// address, else an hour, and then only if the node can get another block.
func (w *blockShare) stuckDespiteFree(closed *closedBlocks, u *usage, agent string) (newest Pod) {
	least := hangsFor
	if w.requestsMore(u) {
		least = givesBackWithin
	} else if !w.assignment.PoolHasFree || w.blocks.inService() >= w.input.policy.MaxBlocks {
		return newest
	}
	for _, pod := range u.stuck {
		begin, known := closed.freeSince[pod.Name]
		if known && !w.hasInferred(agent, pod.Created) && !w.input.now.Before(longer(begin, pod, least)) && pod.Created.After(newest.Created) {
			newest = pod
		}
	}
	return newest
}

// hasInferred reports whether a block was inferred to be closed from a pod of that time, or a later one.
func (w *blockShare) hasInferred(agent string, created time.Time) bool {
	return slices.ContainsFunc(w.blocks.all, func(b *block) bool {
		return b.Closed.Inferred && b.Closed.Agent == agent && !b.Closed.Since.Before(created)
	})
}

// HasFree reports whether an agent that is assigned whole blocks has an address for a new pod: an
// address of a listed block that it has not closed, and without a known user. Foreign addresses
// count as free.
func (s *State) HasFree() bool {
	free := s.BlockAssignment.Foreign
	for i := range s.Blocks {
		if b := &s.Blocks[i]; b.Listed && !b.Parked && !s.hasClosed(b) {
			free += b.Size - s.usersIn(b.CIDR)
		}
	}
	return free > 0
}

// hasClosed reports whether this run of the agent has closed a block.
func (s *State) hasClosed(b *Block) bool { return b.Closed.By(s.BlockAssignment.Agent) }

// regains reports whether this run of the agent regains parked blocks in use.
func (s *State) regains() bool {
	w := s.BlockAssignment
	return w.Regains || slices.ContainsFunc(s.Blocks, func(b Block) bool { return b.Closed.Regained(w.Agent) })
}

// usersIn is the number of addresses of a CIDR that pods have, or the agent itself.
func (s *State) usersIn(cidr netip.Prefix) int {
	used := map[netip.Addr]bool{}
	for a := range s.Used {
		used[a] = true
	}
	for _, pod := range s.Pods {
		for _, a := range pod.IPs {
			used[a] = true
		}
	}
	maps.DeleteFunc(used, func(a netip.Addr, _ bool) bool { return !cidr.Contains(a) })
	return len(used)
}

// isClosed reports whether the agent allocates no address of a block to a new pod.
func (s *State) isClosed(b *Block) bool {
	return b.Parked || s.hasClosed(b) && !s.hasNewer(b.CIDR, b.Closed.Since)
}

// hasNewer reports whether a pod has an address of a block that was created after the
// block had been closed: its agent has not seen it parked, or did not use it then.
func (s *State) hasNewer(block netip.Prefix, closed time.Time) bool {
	return slices.ContainsFunc(s.Pods, func(p Pod) bool {
		return p.Created.After(closed) && slices.ContainsFunc(p.IPs, block.Contains)
	})
}
