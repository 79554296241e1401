package expand

import (
	"time"
)

// An agent that is assigned whole blocks has no handshake, but a block can be closed to
// new pods: a block that is taken off its agent's list while pods use it serves these
// pods and no others, until the agent restarts, even once it is listed again (Cilium
// v1.20.1, pkg/ipam/pool.go, updatePool and allocateNext). Meanwhile the block is parked:
// it counts as listed for other nodes. For its agent it is not, so an agent that restarts
// then loses these pods. Hence a block is parked for as short as possible, and only where
// the agent has run steadily.

// parkingAllowed reports whether a block may be parked: no other one of the node is, of any family or Cilium pool.
func (w *blockShare) parkingAllowed() bool { return w.assignment.MayPark && !w.input.budget.OtherParks }

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
	return u.state.BlockAssignment.Agent
}

// parkDraining parks a draining block, lists parked ones in use again, and records which
// the agent has closed.
func (w *blockShare) parkDraining(p *planner) {
	p.rememberWaits()
	if w.assignment.MayHaveClosed && p.usage.waiting+len(p.usage.stuck) > 0 {
		p.requeueLater() // see inferClosed
	}
	for _, b := range w.blocks.all {
		if !b.Listed {
			continue
		}
		if b.users == 0 && b.Closed.Agent != "" {
			begin, known := w.input.memory.EmptySince[b.CIDR]
			if !known {
				begin = w.input.now
			}
			remember(&p.nextMemory.EmptySince, b.CIDR, begin)
		}
		w.advanceParking(p, b)
	}
}

func (w *blockShare) advanceParking(p *planner, b *block) {
	parking, known := w.input.memory.Parked[b.CIDR]
	found := w.closed.evidence[b.CIDR]
	switch {
	case b.Parked:
		if !known {
			parking = Parking{p.usage.steadyAgent(), w.input.now}
		}
		remember(&p.nextMemory.Parked, b.CIDR, parking)
		p.unpark(b, parking)
	case known && w.state.closedSince(b.Block, parking):
		remember(&p.nextMemory.Parked, b.CIDR, parking)
		p.recordClosed(b, Closed{Agent: parking.Agent, Since: parking.Since, Fruitless: w.fruitless(b)})
	case found.disproved && b.inService():
		p.recordClosed(b, Closed{})
	case found.inferred != Closed{}:
		p.recordClosed(b, found.inferred)
	case b.Closed.Fruitless == mostFruitless-1 && w.fruitless(b) == mostFruitless:
		p.recordClosed(b, Closed{Agent: b.Closed.Agent, Since: b.Closed.Since, Fruitless: mostFruitless})
	case w.mayPark(p, b) && w.parkOrWait(p, b):
		p.plan.Park = b.CIDR
	}
}

func (p *planner) recordClosed(b *block, closed Closed) {
	p.plan.RecordClosed = append(p.plan.RecordClosed, ClosedRecord{CIDR: b.CIDR, Closed: closed})
}

// fruitless counts the fruitless parkings of a block by this run of the agent, the last one that is recorded
// included.
func (w *blockShare) fruitless(b *block) int {
	if b.Closed.Agent != w.assignment.Agent || b.Closed.Inferred {
		return 0
	}
	if w.state.hasNewer(b.CIDR, b.Closed.Since) {
		return min(b.Closed.Fruitless+1, mostFruitless)
	}
	return b.Closed.Fruitless
}

// closedSince reports whether the agent that runs has closed a block which is back, and
// that is yet to be recorded.
func (s *State) closedSince(b *Block, parking Parking) bool {
	recorded := b.Closed.Agent == parking.Agent && !b.Closed.Since.Before(parking.Since)
	return parking.Agent != "" && parking.Agent == s.BlockAssignment.Agent && !recorded
}

// unpark lists a parked block in use again, once its agent must have seen that it was parked, and
// at once if the agent may restart. A parked block without a known user is the agent's to drop: if
// it were back before that, the agent would allocate from it again.
func (p *planner) unpark(b *block, parking Parking) {
	if b.users == 0 {
		return
	}
	if !p.usage.trusted || p.dueOrRequeue(parking.Since.Add(parkFor)) {
		p.plan.Unpark = append(p.plan.Unpark, b.CIDR)
	}
}

// mayPark reports whether a block that must go may be parked: no other one is, the agent
// runs steadily, and no agent of crd mode may run in its place.
func (w *blockShare) mayPark(p *planner, b *block) bool {
	drains := b.change != changeUndrain && (b.fate == fateVacating || b.fate == fateDraining && b.Reason == Compaction)
	return drains && w.parkingAllowed() && !p.plan.Park.IsValid() && p.usage.steadyAgent() != "" && !b.Leftover
}

// parkOrWait reports whether to park such a block, or records the reason to wait: one not closed, or one that has become empty, as its
// agent would keep it for its reserve. Pods must find an address elsewhere. A block with the
// agent's own addresses cannot leave, so no second run of the agent has to close it. Pods that seem
// newer than the last parking, as this clock may be behind, make it park again no sooner than in a while.
func (w *blockShare) parkOrWait(p *planner, b *block) bool {
	closedSince := b.Closed.Since
	if closedSince.After(w.input.now) {
		closedSince = w.input.now
	}
	if !w.mayHaveAnother(p) && w.assignment.Foreign+w.blocks.freeElsewhere(&w.closed, b)-p.usage.waiting <= 0 {
		b.waitReason = WaitReplacement
		p.requeueLater()
		return false
	}
	if b.users > 0 {
		return w.parksInUse(p, b, closedSince)
	}
	if p.usage.waiting > 0 && p.awaitPods(b) { // they may have an address of it already
		p.requeueLater()
		return false
	}
	emptySince := p.nextMemory.EmptySince[b.CIDR]
	if b.Closed.Agent != w.assignment.Agent || closedSince.Before(emptySince) && !b.Closed.Regained(w.assignment.Agent) {
		return true
	}
	// The agent has a user of it that is not known here, or finds new ones: it is asked again, later each time.
	return p.dueOrRequeue(emptySince.Add(max(givesBackWithin, 2*closedSince.Sub(emptySince))))
}

// parksInUse reports whether to park a block with users that its agent was last known to close at
// closedSince.
func (w *blockShare) parksInUse(p *planner, b *block, closedSince time.Time) bool {
	if w.closed.contains(b) || w.state.regains() {
		return false
	}
	if b.own > 0 && b.Closed.Agent != "" && b.Closed.Agent != w.assignment.Agent && !b.Closed.Inferred {
		return false
	}
	return b.Closed.Agent != w.assignment.Agent || p.dueOrRequeue(closedSince.Add(reserveWait))
}

// mayHaveAnother reports whether the node may have another block.
func (w *blockShare) mayHaveAnother(p *planner) bool {
	return w.assignment.PoolHasFree && w.blocks.inService() < w.input.policy.MaxBlocks && p.room() > 0
}
