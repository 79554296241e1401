package expand

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Decide returns the plan for one node and family, and what to remember until the
// next call. It is a pure function of its inputs and changes none of them. p must
// be valid.
//
// The Memory returned takes the place of m even where the plan could not be
// carried out: that only makes waits longer.
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
	// 1. What the node needs, and what it has.
	d.countDemand()
	d.classify()
	d.setTarget()
	d.expectPods()
	d.fillBlocks()

	// 2. Grow: first what is the node's already, then new blocks.
	covered := d.deficit() <= 0
	d.readmit()
	d.undrain()
	d.restoreUsed()
	d.countServedElsewhere()
	d.claim()

	// 3. Shrink: what must go, then what may go.
	d.drainAsked(covered)
	d.reclaim()

	// 4. Walk every leaving address one step, and every empty block.
	d.drainAgain()
	d.handshake()
	d.freeEmpty()
	d.deleteCooled()

	d.explain()
}

// decideBlocks decides for an agent that is assigned whole blocks, in the same order.
// Nothing is reclaimed, as the agent returns what it does not need, and there is no
// handshake.
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
	d.plan.Capacity -= d.shut
}

// decision is one call of Decide: what it was given, what it has found out, and
// the answer so far.
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
	// awaited are the pods whose addresses should become known shortly; after
	// awaitedUntil they count as hanging.
	awaited      []string
	awaitedUntil time.Duration
	// extra are the addresses in use that the agent's report does not name,
	// and by whom.
	extra map[netip.Addr]user
	// walk are the addresses that the handshake has to look at, sorted.
	walk []netip.Addr

	// published counts the pool's addresses, with those this plan and its
	// undrained blocks add. foreign are those of them in no block of ours
	// that any pod may get.
	published, foreign int
	// need is what the node's pods need, by the policy; target what it should
	// have, with what its CiliumNode requests beyond that.
	need, target, hardCap int
	// unreserved is the part of target that its pods need, and those that are yet to be
	// scheduled.
	unreserved int
	// own are the addresses in the demand that are the agent's own, not pods'; waiting
	// are the bound pods in it that have no address.
	own, waiting int
	// hanging are the bound pods that have had no address for long.
	hanging int
	// shut are the free addresses of listed blocks that are closed.
	shut int
	// roomToMove: the agent has other addresses to take in place of those that retire.
	roomToMove bool

	plan   Plan
	memory Memory
}

// block is a Block and what this decision has found out about it.
type block struct {
	*Block
	published int // its addresses in the pool
	held      int // usable ones of those
	open      int // held ones that any pod may get: no owner written by hand
	entries   int // release-ips entries for its addresses
	users     int // its addresses in use
	own       int // those of them that the agent itself uses
	retired   int // those that it does not take up again when it restarts
	coming    int // addresses that this or a later plan publishes
	// counted: its open addresses are capacity, whatever is planned for it.
	counted bool
	// closed: its agent allocates no address of it to a new pod.
	closed bool
	// pinned: an address of it does not go by itself, as it is the agent's
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

// departing reports whether the block is leaving or must leave now, and does not
// return to service however many addresses the node needs.
func (b *block) departing() bool {
	return b.asked() || b.Phase != ipalloc.InService && b.Request != None
}

// onHold reports whether the block is in service and must leave, but not yet.
func (b *block) onHold() bool {
	return b.Phase == ipalloc.InService && b.Request != None && b.Hold.For != ""
}

// capacity is how many addresses the block gives the node while it serves.
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

// finish sorts the plan.
func (d *decision) finish() (Plan, Memory) {
	for i := range d.blocks {
		if b := &d.blocks[i]; !b.drained {
			// Sorted, as the blocks are and what each publishes.
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

// publishOnly is what is safe before an agent has come up in crd mode: it reads
// nothing of the pool, answers no mark, and its node's routes are another IPAM's.
func publishOnly(plan Plan) Plan {
	return Plan{Node: plan.Node, Family: plan.Family, Publish: plan.Publish, Demand: plan.Demand, Capacity: plan.Capacity}
}
