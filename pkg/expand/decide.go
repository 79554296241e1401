package expand

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Decide returns the plan for one node and family, and the memory for the next call. It is
// a pure function of its inputs and changes none of them. p must be valid.
//
// The caller keeps the returned Memory in place of m even if it could not carry out the
// plan: that only makes waits longer.
func Decide(now time.Time, p Policy, s State, b Budget, m Memory) (Plan, Memory) {
	input := &input{now: now, policy: p, budget: b, memory: m}
	if s.Gone {
		return returnAll(&s, input)
	}
	if s.BlockAssignment == nil {
		return decideAddresses(&s, input)
	}
	if s.BlockAssignment.NodeAgent {
		return decideForNodeAgent(&s, input)
	}
	return decideBlocks(&s, input)
}

// decideAddresses decides for an agent that is assigned addresses.
func decideAddresses(s *State, input *input) (Plan, Memory) {
	// 1. Determine the node's holdings and needs.
	p := planAddresses(s, input)

	// 2. Grow: first use the blocks that the node already holds, then claim new ones.
	p.fillBlocks()
	covered := p.deficit() <= 0
	p.cancelDrains()
	p.undrain()
	p.restoreUsed()
	p.countServedElsewhere()
	p.claim()

	// 3. Shrink: drain blocks that must leave, then reclaim blocks that may.
	p.drainRequested(covered)
	p.reclaim(p.removable(), Reclaim)

	// 4. Advance every leaving address and every empty block one step.
	p.drainAgain()
	h := newHandshake(p)
	h.advance()
	p.coolEmpty()
	p.deleteCooled()

	p.explain(h.obstacleTo)
	return p.finish()
}

// planAddresses returns an empty plan for an agent that is assigned addresses.
func planAddresses(s *State, input *input) *planner {
	usage := countAddresses(s, input)
	blocks := sortBlocks(s, &input.budget)
	blocks.classify(&usage)
	return newPlanner(input, usage, blocks, addressNeeds(input.policy, &usage, blocks))
}

// planPublished returns an empty plan for an agent that uses all that it is assigned: addresses, or blocks that a node
// agent keeps.
func planPublished(s *State, input *input) *planner {
	if s.BlockAssignment != nil {
		return planForNodeAgent(s, input)
	}
	return planAddresses(s, input)
}

// decideBlocks decides for an agent that is assigned whole blocks, in the same order. It performs no
// handshake: the agent itself returns blocks that it does not need. So only blocks in use are
// reclaimed, to be closed.
func decideBlocks(s *State, input *input) (Plan, Memory) {
	// 1. Determine the node's holdings and needs.
	w, p := planBlocks(s, input)

	// 2. Grow: first assign blocks that the node already holds, then claim new ones.
	w.assignBlocks(p)
	covered := p.deficit() <= 0
	p.cancelDrains()
	p.undrain()
	w.restoreLeftovers(p)
	w.reassignUsed(p)
	p.claim()

	// 3. Shrink: drain blocks that must leave, then one in use that the others can replace.
	p.drainRequested(covered)
	p.drainAgain()
	p.reclaim(w.compactionCandidate(p), Compaction)

	// 4. Advance: close the draining blocks, one at a time, and every empty block by one step.
	w.parkDraining(p)
	p.clearAll()
	w.forgetReturned(p)
	p.coolEmpty()
	p.deleteCooled()

	p.explain(func(b *block) (WaitReason, []string) { return w.obstacleTo(p, b) })
	w.reportStuckPods(p)
	p.plan.Capacity -= p.closed.free
	return p.finish()
}

// planBlocks returns an empty plan for an agent that is assigned whole blocks.
func planBlocks(s *State, input *input) (*blockShare, *planner) {
	w := newBlockShare(s, input)
	usage := w.countBlockAssignment()
	w.blocks.classify(&usage)
	w.closed = w.findClosed(&usage)
	usage.countStuck(&w.closed)
	p := newPlanner(input, usage, w.blocks, w.needs(&usage))
	p.closed = w.closed
	p.nextMemory.FreeSince = w.closed.freeSince
	p.nextMemory.Witness = w.closed.witness
	p.requeueAt(w.closed.retryAt)
	return w, p
}

// returnAll lets all blocks of a node that is gone cool down, in use or not: the caller has seen
// that there is no CiliumNode to use them from.
func returnAll(s *State, input *input) (Plan, Memory) {
	p := newPlanner(input, usage{state: s}, sortBlocks(s, &input.budget), needs{})
	for _, b := range p.blocks.all {
		if b.Phase != ipalloc.CoolingDown {
			p.coolDown(b, NodeGone)
		}
	}
	for a := range s.Pool {
		if b := p.blocks.blockOf(a); b != nil {
			b.published++
		}
	}
	p.deleteCooled()
	return p.finish()
}

// input holds the arguments of Decide beside the State. No step changes it.
type input struct {
	now    time.Time
	policy Policy
	budget Budget
	memory Memory
}

// planner builds the plan for a node. Its steps change only the plan, the memory, and the
// planned changes of blocks.
type planner struct {
	state  *State
	input  *input
	usage  usage
	needs  needs
	blocks *blocks
	closed closedBlocks

	plan       Plan
	nextMemory Memory
}

func newPlanner(input *input, usage usage, blocks *blocks, needs needs) *planner {
	s := usage.state
	return &planner{
		state: s, input: input, usage: usage, needs: needs, blocks: blocks,
		plan: Plan{Node: s.Node, Family: s.Family, Demand: usage.demand},
	}
}

// requeueAt requests another decision at t, if it is known and none is requested earlier.
func (p *planner) requeueAt(t time.Time) {
	if !t.IsZero() && (p.plan.RequeueAt.IsZero() || t.Before(p.plan.RequeueAt)) {
		p.plan.RequeueAt = t
	}
}

// requeueLater requests another decision in a while, for a cause without an event of its own: pods have waited
// for too long, or wait no more for blocks elsewhere.
func (p *planner) requeueLater() { p.requeueAt(p.input.now.Add(reserveWait)) }

// dueOrRequeue reports whether t has come. If not, it requests another decision then.
func (p *planner) dueOrRequeue(t time.Time) bool {
	if p.input.now.Before(t) {
		p.requeueAt(t)
		return false
	}
	return true
}

// finish completes and sorts the plan.
func (p *planner) finish() (Plan, Memory) {
	for _, b := range p.blocks.all {
		if b.change != changeDrain {
			// Sorted, because the blocks and each block's addresses are.
			p.plan.Publish = append(p.plan.Publish, b.publish...)
			if b.assigned {
				p.plan.Assign = append(p.plan.Assign, b.CIDR)
			}
		}
	}
	slices.SortFunc(p.plan.Undrain, netip.Prefix.Compare)
	slices.SortFunc(p.plan.Drain, func(a, b Drain) int {
		return cmp.Or(a.CIDR.Compare(b.CIDR), cmp.Compare(a.Reason, b.Reason))
	})
	if p.state.Adopting {
		// Until an agent has started in the new mode, it neither reads what is published nor answers
		// marks, and the node's routes are from another IPAM.
		p.plan = Plan{Node: p.plan.Node, Family: p.plan.Family, Publish: p.plan.Publish, Assign: p.plan.Assign, Demand: p.plan.Demand, Capacity: p.plan.Capacity}
	}
	return p.plan, p.nextMemory
}

// remember adds an entry to a map, which may be nil.
func remember[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}
