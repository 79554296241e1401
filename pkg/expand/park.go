package expand

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// An agent that is assigned whole blocks has no handshake, but a block can be closed to
// new pods: a block that is taken off its agent's list while pods use it serves these
// pods and no others, until the agent restarts, even once it is listed again (Cilium
// v1.20.1, pkg/ipam/pool.go, updatePool and allocateNext). Meanwhile the block is parked:
// it counts as listed for other nodes. For its agent it is not, so an agent that restarts
// then loses these pods. Hence a block is parked for as short as possible, and only where
// the agent has run steadily.

// parkFor is the time that a block in use is parked: longer than the agent's watch takes.
const parkFor = time.Second

// mostFruitless is the number of fruitless parkings of a block after which its agent's run closes
// none: an agent may take back what is listed again (cilium/cilium#47916).
const mostFruitless = 2

// Parking is a block that was seen parked.
type Parking struct {
	// Agent is the container of the agent that ran steadily then; "": none did.
	Agent string
	Since time.Time
}

// Closed is a block that was off its agent's list while in use, and is listed again.
type Closed struct {
	// Agent is the container of the agent that had it in use: that run of the agent
	// allocates no address of it to a new pod. "": none did.
	Agent string
	// Since is when it was off the list.
	Since time.Time
	// Inferred: the operator did not observe that. A pod waits although the block has free addresses;
	// Since is when that pod was created.
	Inferred bool
	// Fruitless is the number of parkings, at most mostFruitless, after which that run of the agent
	// went on to allocate from the block.
	Fruitless int
}

// By reports whether the agent that runs in a container has closed the block. One that regains blocks
// has not.
func (c Closed) By(agent string) bool {
	return agent != "" && c.Agent == agent && !c.Regained(agent)
}

// Regained reports whether the agent that runs in a container went on to allocate from the block after
// each parking. It closes no block.
func (c Closed) Regained(agent string) bool {
	return agent != "" && c.Agent == agent && c.Fruitless >= mostFruitless
}

// steadyAgent is the agent's container, or "" unless it runs steadily.
func (u *usage) steadyAgent() string {
	if !u.trusted {
		return ""
	}
	return u.Agent
}

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

// closeBlocks finds the blocks that the agent has closed, from records, from parkings that are not recorded
// yet, and from pods that wait although blocks have free addresses.
func (w *blockShare) closeBlocks(u *usage) closedBlocks {
	closed := closedBlocks{}
	for _, b := range w.blocks.all {
		parking := w.old.Parked[b.CIDR]
		if w.isClosed(b) || u.closedSince(b, parking) && !w.hasNewer(b, parking.Since) {
			closed.add(b, Closed{})
		}
		b.notCompacted = w.notCompacted(b, closed.contains(b))
	}
	if closed.free > 0 || w.MayHaveClosed {
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
	free := w.blocks.freeElsewhere(closed, nil) + w.Foreign
	for _, pod := range u.stuck {
		since, known := w.old.FreeSince[pod.Name]
		known = known && !since.Before(pod.Seen)
		again := longer(since, pod, givesBackWithin)
		switch {
		case free <= 0 && (!known || !w.now.Before(again)):
			continue
		case !known:
			since = w.now
		case !w.now.Before(since.Add(triedFor)):
			remember(&closed.notForAddresses, pod.Name, true)
			if free <= 0 && (closed.retryAt.IsZero() || again.Before(closed.retryAt)) {
				closed.retryAt = again
			}
		}
		remember(&closed.freeSince, pod.Name, since)
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
func longer(since time.Time, pod Pod, least time.Duration) time.Time {
	return since.Add(max(least, since.Sub(pod.Seen)))
}

// asked reports whether the agent requests more addresses than for its users and its reserve: pods asked
// it for one in vain.
func (w *blockShare) asked(u *usage) bool {
	known := w.PreAllocation > 0 || w.NoPreallocation
	return known && w.Requested > RequestFor(u.demand, w.PreAllocation)
}

// judgeInferred confirms or ends what was inferred from a pod that waited. Its address elsewhere, once there
// was one, confirms it. A later pod's address of the block, the pod's end, or a pod that hangs all the same
// disproves it: else the block's free addresses would be lost until the agent restarts.
func (w *blockShare) judgeInferred(closed *closedBlocks) {
	for _, b := range w.blocks.all {
		if !b.Closed.Inferred || !w.hasClosed(b.Block) || !b.Listed {
			continue
		}
		waits := false
		elsewhere := false
		for _, pod := range w.Pods {
			if pod.Created.Before(b.Closed.Since) {
				continue
			}
			elsewhere = elsewhere || pod.Name == w.old.Witness && slices.ContainsFunc(pod.IPs, w.isElsewhere)
			waits = waits || !slices.ContainsFunc(pod.IPs, w.ours) && !closed.notForAddresses[pod.Name]
		}
		closed.witness = w.old.Witness
		found := closed.evidence[b.CIDR]
		if elsewhere {
			found.inferred = Closed{Agent: b.Closed.Agent, Since: b.Closed.Since}
		}
		found.disproved = !elsewhere && !waits || w.hasNewer(b, b.Closed.Since)
		remember(&closed.evidence, b.CIDR, found)
	}
}

// isElsewhere reports whether a is of the family, and of no block that was inferred to be closed.
func (w *blockShare) isElsewhere(a netip.Addr) bool {
	b := w.blocks.blockOf(a)
	return w.ours(a) && (b == nil || !b.Closed.Inferred)
}

// inferClosed closes the blocks with free addresses if a pod has got none of these for minutes, nor
// has a later one. It reports whether there are any. A pod closes no other blocks later, as it may hang
// for another reason.
func (w *blockShare) inferClosed(closed *closedBlocks, u *usage) bool {
	agent := u.steadyAgent()
	witness := w.stuckDespiteFree(closed, u, agent)
	inferred := Closed{Agent: agent, Since: witness.Created, Inferred: true}
	if !w.MayHaveClosed || w.Foreign > 0 || inferred.Agent == "" || inferred.Since.IsZero() {
		return false
	}
	var free []*block
	for _, b := range w.blocks.all {
		switch {
		case !b.Listed || closed.contains(b) || b.allocatable <= b.users:
		case w.hasNewer(b, inferred.Since):
			return false
		default:
			free = append(free, b)
		}
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
	switch {
	case w.asked(u):
		least = givesBackWithin
	case !w.Replaceable || w.blocks.inService() >= w.policy.MaxBlocks:
		return newest
	}
	for _, pod := range u.stuck {
		since, known := closed.freeSince[pod.Name]
		if known && !w.hasInferred(agent, pod.Created) && !w.now.Before(longer(since, pod, least)) && pod.Created.After(newest.Created) {
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
func (s *State) hasClosed(b *Block) bool { return b.Closed.By(s.Agent) }

// regains reports whether this run of the agent regains parked blocks in use.
func (s *State) regains() bool {
	return s.Regains || slices.ContainsFunc(s.Blocks, func(b Block) bool { return b.Closed.Regained(s.Agent) })
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
func (in *input) isClosed(b *block) bool {
	return b.Parked || in.hasClosed(b.Block) && !in.hasNewer(b, b.Closed.Since)
}

// hasNewer reports whether a pod has an address of a block that was created after the
// block had been closed: its agent has not seen it parked, or did not use it then.
func (in *input) hasNewer(b *block, closed time.Time) bool {
	return slices.ContainsFunc(in.Pods, func(p Pod) bool {
		return p.Created.After(closed) && slices.ContainsFunc(p.IPs, b.CIDR.Contains)
	})
}

// closing lets a plan close blocks to new pods.
type closing struct{ *planner }

// parkDraining parks a draining block, lists parked ones in use again, and records which
// the agent has closed.
func (c closing) parkDraining() {
	c.keepHeld()
	if c.MayHaveClosed && c.waiting+len(c.stuck) > 0 {
		c.requeueLater() // see inferClosed
	}
	for _, b := range c.all {
		if !b.Listed {
			continue
		}
		if b.users == 0 && b.Closed.Agent != "" {
			since, known := c.old.EmptySince[b.CIDR]
			if !known {
				since = c.now
			}
			remember(&c.memory.EmptySince, b.CIDR, since)
		}
		c.parkBlock(b)
	}
}

func (c closing) parkBlock(b *block) {
	parking, was := c.old.Parked[b.CIDR]
	found := c.closed.evidence[b.CIDR]
	switch {
	case b.Parked:
		if !was {
			parking = Parking{c.steadyAgent(), c.now}
		}
		remember(&c.memory.Parked, b.CIDR, parking)
		c.unpark(b, parking)
	case was && c.closedSince(b, parking):
		remember(&c.memory.Parked, b.CIDR, parking)
		c.record(b, Closed{Agent: parking.Agent, Since: parking.Since, Fruitless: c.fruitless(b)})
	case found.disproved && b.inService():
		c.record(b, Closed{})
	case found.inferred != Closed{}:
		c.record(b, found.inferred)
	case b.Closed.Fruitless == mostFruitless-1 && c.fruitless(b) == mostFruitless:
		c.record(b, Closed{Agent: b.Closed.Agent, Since: b.Closed.Since, Fruitless: mostFruitless})
	case c.mayPark(b) && c.parks(b):
		c.plan.Park = b.CIDR
	}
}

func (c closing) record(b *block, closed Closed) {
	c.plan.Close = append(c.plan.Close, Close{CIDR: b.CIDR, Closed: closed})
}

// fruitless counts the fruitless parkings of a block by this run of the agent, the last one that is recorded
// included.
func (c closing) fruitless(b *block) int {
	switch {
	case b.Closed.Agent != c.Agent, b.Closed.Inferred:
		return 0
	case c.hasNewer(b, b.Closed.Since):
		return min(b.Closed.Fruitless+1, mostFruitless)
	default:
		return b.Closed.Fruitless
	}
}

// closedSince reports whether the agent that runs has closed a block which is back, and
// that is yet to be recorded.
func (u *usage) closedSince(b *block, parking Parking) bool {
	recorded := b.Closed.Agent == parking.Agent && !b.Closed.Since.Before(parking.Since)
	return parking.Agent != "" && parking.Agent == u.Agent && !recorded
}

// unpark lists a parked block in use again, once its agent must have seen that it was parked, and
// at once if the agent may restart. A parked block without a known user is the agent's to drop: if
// it were back before that, the agent would allocate from it again.
func (c closing) unpark(b *block, parking Parking) {
	if b.users == 0 {
		return
	}
	if !c.trusted || c.due(parking.Since.Add(parkFor)) {
		c.plan.Unpark = append(c.plan.Unpark, b.CIDR)
	}
}

// mayPark reports whether a block that must go may be parked: no other one is, the agent
// runs steadily, and no agent of crd mode may run in its place.
func (c closing) mayPark(b *block) bool {
	drains := b.change != changeUndrain && (b.fate == fateVacating || b.fate == fateDraining && b.Reason == Compaction)
	return drains && c.MayPark && !c.budget.OtherParks && !c.plan.Park.IsValid() && c.steadyAgent() != "" && !b.Leftover
}

// parks reports whether to park such a block: one not closed, or one that has become empty, as its
// agent would keep it for its reserve. Pods must find an address elsewhere. A block with the
// agent's own addresses cannot leave, so no second run of the agent has to close it. Pods that seem
// newer than the last parking, as this clock may be behind, make it park again no sooner than in a while.
func (c closing) parks(b *block) bool {
	closedSince := b.Closed.Since
	if closedSince.After(c.now) {
		closedSince = c.now
	}
	if !c.mayReplace() && c.BlockAssignment.Foreign+c.freeElsewhere(&c.closed, b)-c.waiting <= 0 {
		b.heldFor = WaitReplacement
		c.requeueLater()
		return false
	}
	if b.users > 0 {
		return c.parksInUse(b, closedSince)
	}
	if c.waiting > 0 && c.holds(b) { // they may have an address of it already
		c.requeueLater()
		return false
	}
	emptySince := c.memory.EmptySince[b.CIDR]
	if b.Closed.Agent != c.Agent || closedSince.Before(emptySince) && !b.Closed.Regained(c.Agent) {
		return true
	}
	// The agent has a user of it that is not known here, or finds new ones: it is asked again, later each time.
	return c.due(emptySince.Add(max(givesBackWithin, 2*closedSince.Sub(emptySince))))
}

// parksInUse reports whether to park a block with users that its agent was last known to close at
// closedSince.
func (c closing) parksInUse(b *block, closedSince time.Time) bool {
	if c.closed.contains(b) || c.regains() {
		return false
	}
	if b.own > 0 && b.Closed.Agent != "" && b.Closed.Agent != c.Agent && !b.Closed.Inferred {
		return false
	}
	return b.Closed.Agent != c.Agent || c.due(closedSince.Add(reserveWait))
}

// mayReplace reports whether the node may have another block.
func (c closing) mayReplace() bool {
	return c.Replaceable && c.inService() < c.policy.MaxBlocks && c.room() > 0
}

// requeueLater requeues the node in a while: that pods have waited for too long is no event.
func (c closing) requeueLater() { c.requeueAt(c.now.Add(reserveWait)) }
