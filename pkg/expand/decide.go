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
	input := &input{State: &s, now: now, policy: p, budget: b, old: m}
	if s.Gone {
		return returnAll(input)
	}
	if s.BlockAssignment != nil {
		return decideBlocks(input)
	}
	return decideAddresses(input)
}

// decideAddresses decides for an agent that is assigned addresses.
func decideAddresses(input *input) (Plan, Memory) {
	// 1. Determine the node's holdings and needs.
	p := planAddresses(input)

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
	h := &handshake{planner: p}
	h.advance()
	p.freeEmpty()
	p.deleteCooled()

	p.explain(h.waitOf)
	return p.finish()
}

// planAddresses returns an empty plan for an agent that is assigned addresses.
func planAddresses(input *input) *planner {
	use := countAddresses(input)
	blocks := sortBlocks(input)
	blocks.classify(&use)
	return newPlanner(use, blocks, addressNeeds(&use, blocks))
}

// decideBlocks decides for an agent that is assigned whole blocks, in the same order. It performs no
// handshake: the agent itself returns blocks that it does not need. So only blocks in use are
// reclaimed, to be closed.
func decideBlocks(input *input) (Plan, Memory) {
	w, p := planBlocks(input)
	w.assignBlocks(p)
	covered := p.deficit() <= 0
	p.cancelDrains()
	p.undrain()
	p.restoreLeftovers()
	w.restoreUsed(p)
	p.claim()

	p.drainRequested(covered)
	p.drainAgain()
	p.reclaim(w.compactable(p), Compaction)
	closing{p}.parkDraining()
	p.clearAll()
	p.freeEmpty()
	p.deleteCooled()

	p.explain(func(b *block) (WaitReason, []string) { return w.waitOf(p, b) })
	w.reportStuckPods(p)
	p.plan.Capacity -= p.closed.free
	return p.finish()
}

// planBlocks returns an empty plan for an agent that is assigned whole blocks.
func planBlocks(input *input) (*blockShare, *planner) {
	w := newBlockShare(input)
	use := w.countBlockAssignment()
	w.blocks.classify(&use)
	w.closed = w.closeBlocks(&use)
	use.countStuck(&w.closed)
	p := newPlanner(use, w.blocks, w.needs(&use))
	p.closed = w.closed
	p.memory.FreeSince = w.closed.freeSince
	p.memory.Witness = w.closed.witness
	p.requeueAt(w.closed.retryAt)
	return w, p
}

// returnAll lets all blocks of a node that is gone cool down, in use or not: the caller has seen
// that there is no CiliumNode to use them from.
func returnAll(input *input) (Plan, Memory) {
	p := newPlanner(usage{input: input}, sortBlocks(input), needs{})
	for _, b := range p.all {
		if b.Phase != ipalloc.CoolingDown {
			p.free(b, NodeGone)
		}
	}
	for a := range input.Pool {
		if b := p.blockOf(a); b != nil {
			b.published++
		}
	}
	p.deleteCooled()
	return p.finish()
}

// input holds the arguments of Decide. No step changes it.
type input struct {
	*State
	now    time.Time
	policy Policy
	budget Budget
	old    Memory
}

// planner builds the plan for a node. Its steps change only the plan, the memory, and the
// planned changes of blocks.
type planner struct {
	usage
	needs
	*blocks
	closed closedBlocks

	plan   Plan
	memory Memory
}

func newPlanner(use usage, blocks *blocks, needs needs) *planner {
	return &planner{usage: use, blocks: blocks, needs: needs, plan: Plan{Node: use.Node, Family: use.Family, Demand: use.demand}}
}

// requeueAt requests another decision at t, if it is known and none is requested earlier.
func (p *planner) requeueAt(t time.Time) {
	if !t.IsZero() && (p.plan.RequeueAt.IsZero() || t.Before(p.plan.RequeueAt)) {
		p.plan.RequeueAt = t
	}
}

// due reports whether t has come. If not, it requests another decision then.
func (p *planner) due(t time.Time) bool {
	if p.now.Before(t) {
		p.requeueAt(t)
		return false
	}
	return true
}

// finish completes and sorts the plan.
func (p *planner) finish() (Plan, Memory) {
	for _, b := range p.all {
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
	if p.Adopting {
		// Until an agent has started in the new mode, it neither reads what is published nor answers
		// marks, and the node's routes are from another IPAM.
		p.plan = Plan{Node: p.plan.Node, Family: p.plan.Family, Publish: p.plan.Publish, Assign: p.plan.Assign, Demand: p.plan.Demand, Capacity: p.plan.Capacity}
	}
	return p.plan, p.memory
}

// remember adds an entry to a map of a new Memory, which may be nil.
func remember[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}
