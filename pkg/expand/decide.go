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
func Decide(now time.Time, p Policy, s State, m Memory) (Plan, Memory) {
	d := newDecision(now, p, &s, m)
	switch {
	case s.Gone:
		d.returnAll()
	case s.BlockDemand != nil:
		d.decideBlocks()
	default:
		d.decideAddresses()
	}
	return d.finish()
}

// decideAddresses decides for an agent that is assigned addresses.
func (d *decision) decideAddresses() {
	// 1. Determine what the node needs and has.
	d.countDemand()
	d.classify()
	d.setTarget()
	d.expectPods()
	d.fillBlocks()

	// 2. Grow: first use what the node already holds, then claim new blocks.
	covered := d.deficit() <= 0
	d.readmit()
	d.undrain()
	d.restoreUsed()
	d.countServedElsewhere()
	d.claim()

	// 3. Shrink: drain what must leave, then reclaim what may.
	d.drainAsked(covered)
	d.reclaim()

	// 4. Advance every leaving address and every empty block one step.
	d.drainAgain()
	d.handshake()
	d.freeEmpty()
	d.deleteCooled()

	d.explain()
}

// decideBlocks decides for an agent that is assigned whole blocks, in the same order. It
// neither reclaims nor performs a handshake: the agent itself returns blocks that it does
// not need.
func (d *decision) decideBlocks() {
	d.countBlockDemand()
	d.classifyAssigned()
	d.classify()
	d.closeBlocks()
	d.setBlockTarget()
	d.assignBlocks()

	covered := d.deficit() <= 0
	d.readmit()
	d.undrain()
	d.restoreLeftovers()
	d.recallRestored()
	d.restoreUsed()
	d.claim()

	d.drainAsked(covered)
	d.drainAgain()
	d.parkDraining()
	d.clearAll()
	d.freeEmpty()
	d.deleteCooled()

	d.explain()
	d.reportHanging()
	d.plan.Capacity -= d.shut
}

// decision is the state of one call of Decide: its inputs, what it derived from them, and
// the plan so far.
type decision struct {
	now    time.Time
	policy Policy
	state  *State
	old    Memory

	// blocks are the state's, sorted. nested: some share addresses.
	blocks []block
	nested bool
	// reported: the agent has reported. trusted: it is settled as well, so that an
	// address it does not report as used is free.
	reported, trusted bool
	// awaited are the pods whose addresses should become known within awaitedUntil; after
	// that they count as hanging.
	awaited      []string
	awaitedUntil time.Duration
	// extra are the addresses in use that are missing from the agent's report, with their
	// users.
	extra map[netip.Addr]user
	// walk are the addresses that the handshake visits, sorted.
	walk []netip.Addr

	// published counts the addresses in the pool, including those that this plan and its
	// undrained blocks add. foreign counts those that lie in no block and that any pod may
	// get.
	published, foreign int
	// need is how many addresses the node's pods need under the policy; target adds what its
	// CiliumNode requests beyond that.
	need, target, hardCap int
	// unreserved is the part of target that its pods need, and those that are yet to be
	// scheduled.
	unreserved int
	// own counts the agent's own addresses in the demand, waiting the bound pods in it that
	// have no address.
	own, waiting int
	// hanging counts the bound pods that have been without an address for long.
	hanging int
	// shut counts the free addresses of listed blocks that are closed.
	shut int
	// roomToMove: the agent can take other addresses in place of those that retire.
	roomToMove bool

	plan   Plan
	memory Memory
}

// block is a Block with what this decision derived about it.
type block struct {
	*Block
	published int // its addresses in the pool
	held      int // published addresses that are usable
	open      int // held addresses that any pod may get: they have no owner set by hand
	entries   int // release-ips entries for its addresses
	users     int // its addresses in use
	own       int // addresses in use by the agent itself
	retired   int // own addresses that the agent does not take again when it restarts
	coming    int // addresses that this or a later plan publishes
	// counted: its open addresses are capacity, whatever is planned for it.
	counted bool
	// closed: the agent allocates no address of the block to a new pod.
	closed bool
	// pinned: one of its addresses never becomes free by itself, because it is the agent's
	// own or reserved by hand.
	pinned bool
	// publish are the addresses this plan adds.
	publish []netip.Addr
	// What this plan does with it.
	undrained, drained, freed bool
}

// serving reports whether the block's addresses are capacity once the plan is done.
func (b *block) serving() bool {
	if b.undrained {
		return true
	}
	return b.Phase == ipalloc.InService && !b.asked() && !b.Conflict && !b.drained
}

// asked reports whether the block is in service and must leave now.
func (b *block) asked() bool {
	return b.Phase == ipalloc.InService && b.Request != None && b.Hold.For == ""
}

// departing reports whether the block is leaving or must leave now, and does not return to
// service even if the node needs its addresses.
func (b *block) departing() bool {
	return b.asked() || b.Phase != ipalloc.InService && b.Request != None
}

// onHold reports whether the block is in service and must leave, but not yet.
func (b *block) onHold() bool {
	return b.Phase == ipalloc.InService && b.Request != None && b.Hold.For != ""
}

// capacity returns how many addresses the block contributes while it serves.
func (b *block) capacity() int { return b.open + b.coming }

// usable reports whether a may be published.
func (b *block) usable(a netip.Addr) bool {
	_, ok := slices.BinarySearchFunc(b.Usable, a, netip.Addr.Compare)
	return ok
}

// empty reports whether nothing of the block is left on the node.
func (b *block) empty() bool {
	return b.published == 0 && b.entries == 0 && b.users == 0 && !b.Listed
}

func newDecision(now time.Time, p Policy, s *State, m Memory) *decision {
	d := &decision{
		now: now, policy: p, state: s, old: m,
		blocks: make([]block, len(s.Blocks)),
		plan:   Plan{Node: s.Node, Family: s.Family},
	}
	for i := range s.Blocks {
		d.blocks[i].Block = &s.Blocks[i]
	}
	slices.SortFunc(d.blocks, func(a, b block) int { return a.CIDR.Compare(b.CIDR) })
	for i := 1; i < len(d.blocks); i++ {
		// Prefixes nest or are disjoint, so comparing neighbours suffices.
		if d.blocks[i-1].CIDR.Overlaps(d.blocks[i].CIDR) {
			d.nested = true
		}
	}
	return d
}

// requeueAt requests another decision at t, unless an earlier one is requested.
func (d *decision) requeueAt(t time.Time) {
	if d.plan.RequeueAt.IsZero() || t.Before(d.plan.RequeueAt) {
		d.plan.RequeueAt = t
	}
}

// finish completes and sorts the plan.
func (d *decision) finish() (Plan, Memory) {
	for i := range d.blocks {
		if b := &d.blocks[i]; !b.drained {
			// Sorted, because the blocks and each block's addresses are.
			d.plan.Publish = append(d.plan.Publish, b.publish...)
		}
	}
	slices.SortFunc(d.plan.Undrain, netip.Prefix.Compare)
	slices.SortFunc(d.plan.Drain, func(a, b Drain) int {
		return cmp.Or(a.CIDR.Compare(b.CIDR), cmp.Compare(a.Reason, b.Reason))
	})
	if d.state.Adopting {
		d.plan = publishOnly(d.plan)
	}
	return d.plan, d.memory
}

// publishOnly reduces a plan to what is safe before an agent has started in crd mode: until
// then it does not read the pool or answer marks, and the node's routes are those of another
// IPAM.
func publishOnly(plan Plan) Plan {
	return Plan{Node: plan.Node, Family: plan.Family, Publish: plan.Publish, Demand: plan.Demand, Capacity: plan.Capacity}
}
