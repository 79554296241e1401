package expand

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// budgetWait is the requeue delay while a due reclaim lacks budget: the node's state
// does not say when the budget refills.
const budgetWait = 10 * time.Second

// holdSoon is how near the end of a hold must be for the block's replacement to be
// kept. A window tonight is no reason to keep an idle block all day.
const holdSoon = time.Hour

// drain starts, or starts again, to drain a block.
func (d *decision) drain(b *block, why Reason) {
	b.drained = true
	d.plan.Drain = append(d.plan.Drain, Drain{CIDR: b.CIDR, Reason: why})
}

// drainAsked drains the blocks that must go, once the others cover the target
// with addresses that are or can be published now, or as much of it as the node's
// limits allow.
func (d *decision) drainAsked(covered bool) {
	if !covered && !d.coveredAtLimit() {
		return
	}
	for i := range d.blocks {
		b := &d.blocks[i]
		if b.asked() && !b.withdrawn() {
			d.drain(b, b.Request)
		}
	}
}

// coveredAtLimit reports whether the node can have no more addresses, and those it
// keeps are enough for its pods. Keeping the block that must leave would not add to
// its reserve, either.
func (d *decision) coveredAtLimit() bool {
	grows := len(d.plan.Undrain) > 0 || d.plan.Claim != Claim{}
	return !grows && d.plan.Capacity-d.shut >= max(d.plan.Demand, agentFloor)
}

// withdrawn says that a block in conflict has nothing left on the node, so that
// freeEmpty frees it without a drain.
func (b *block) withdrawn() bool { return b.Conflict && b.empty() }

// drainAgain corrects the reason of drains that a user has requested since, and
// drains cooling-down blocks again if any of their addresses is published or used, or an
// agent runs with them.
func (d *decision) drainAgain() {
	for i := range d.blocks {
		b := &d.blocks[i]
		switch {
		case b.undrained, d.superseded(b):
		case b.Phase == ipalloc.Draining && b.Request != None && b.Request != b.Reason && !b.empty():
			d.drain(b, b.Request)
		case b.Phase == ipalloc.CoolingDown && (b.published+b.users > 0 || d.state.runsWith(b.Block)):
			d.drain(b, cmp.Or(b.Request, Reclaim))
		}
	}
}

// reclaim drains blocks that the node has not needed for long enough.
func (d *decision) reclaim() {
	if d.policy.ReclaimDisabled || !d.trusted {
		return
	}
	candidates := d.removable()
	idle := slices.Clone(d.old.IdleSince[:min(len(d.old.IdleSince), len(candidates))])
	for len(idle) < len(candidates) {
		idle = append(idle, d.now)
	}

	due, idleFor := 0, d.policy.IdleUnder(d.state.PoolTaken, d.state.Cordoned)
	for due < len(idle) && (d.recalled(candidates[due]) || d.now.Sub(idle[due]) >= idleFor) {
		due++
	}
	if due < len(idle) {
		d.requeueAt(idle[due].Add(idleFor))
	}
	starts := d.mayReclaim(due)
	for _, b := range candidates[:starts] {
		d.plan.Capacity -= b.capacity()
		d.drain(b, Reclaim)
	}
	if rest := idle[starts:]; len(rest) > 0 {
		d.memory.IdleSince = rest
	}
}

// mayReclaim is how many of the due reclaims may start.
func (d *decision) mayReclaim(due int) int {
	if due == 0 || d.changing() {
		return 0
	}
	starts := min(due, max(d.state.ReclaimBudget, 0))
	hold := d.state.ReclaimHold
	switch {
	case hold.For != "":
		starts = 0
		d.holdUntil(hold)
	case starts < due:
		d.requeueAt(d.now.Add(budgetWait))
	}
	return starts
}

func (d *decision) holdUntil(h Hold) {
	if !h.Until.IsZero() {
		d.requeueAt(h.Until)
	}
}

// changing reports whether the plan already changes which blocks serve.
func (d *decision) changing() bool {
	return d.deficit() > 0 || len(d.plan.Undrain) > 0 || len(d.plan.Drain) > 0
}

// removable are the blocks that the node can do without all together, in the
// order in which they go: those that are recalled, then those with the fewest addresses
// in use, then the highest, as claims take the lowest. What is left must cover the target, so that it does
// not grow again, and stay at or below ReclaimPercent; and so must what is left
// once blocks have gone whose hold ends soon: if nothing is free to take their
// place, each window would bring back what was reclaimed before it.
func (d *decision) removable() []*block {
	var candidates, chosen []*block
	for i := range d.blocks {
		if b := &d.blocks[i]; b.serving() && !b.undrained && !b.pinned {
			candidates = append(candidates, b)
		}
	}
	slices.SortFunc(candidates, func(a, b *block) int {
		return cmp.Or(d.compareRecalled(a, b), cmp.Compare(a.users, b.users), b.CIDR.Compare(a.CIDR))
	})
	rest, left, later := d.plan.Capacity, d.servingBlocks(), 0
	for i := range d.blocks {
		if b := &d.blocks[i]; d.leavesSoon(b) {
			later += b.capacity()
		}
	}
	kept := false
	for _, b := range candidates {
		if left == 1 {
			break
		}
		without, soon := rest-b.capacity(), d.leavesSoon(b)
		switch {
		case !d.sparesAt(b, without) || soon && kept: // a leaving block is no better than the one kept for it
		case !soon && !d.sparesAt(b, without-later):
			kept = true
		default:
			chosen = append(chosen, b)
			rest, left = without, left-1
			if soon {
				later -= b.capacity()
			}
		}
	}
	return chosen
}

// recalled reports whether pods or another node wait for the block, and nothing uses it. That it
// is not needed again soon, as ReclaimPercent sees to, does not count then.
func (d *decision) recalled(b *block) bool {
	return b.users == 0 && slices.Contains(d.state.Recall, b.CIDR)
}

// sparesAt reports whether the node can do without a block if it has so many addresses
// then.
func (d *decision) sparesAt(b *block, capacity int) bool {
	return d.suffices(capacity) || d.recalled(b) && capacity >= d.target
}

// compareRecalled sorts recalled blocks first.
func (d *decision) compareRecalled(a, b *block) int {
	switch x, y := d.recalled(a), d.recalled(b); {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// Spare returns the blocks that could be recalled from a node now, all together, in the
// order in which they go.
func Spare(now time.Time, p Policy, s State) []netip.Prefix {
	s.Recall = nil
	for i := range s.Blocks {
		s.Recall = append(s.Recall, s.Blocks[i].CIDR)
	}
	d := newDecision(now, p, &s, Memory{})
	d.countDemand()
	d.classify()
	d.setTarget()
	d.expectPods()
	d.fillBlocks()
	if p.ReclaimDisabled || !d.trusted || s.ReclaimHold.For != "" || d.deficit() > 0 {
		return nil
	}
	var spare []netip.Prefix
	for _, b := range d.removable() {
		if d.recalled(b) {
			spare = append(spare, b.CIDR)
		}
	}
	return spare
}

// suffices reports whether so many addresses are enough not to grow again.
func (d *decision) suffices(capacity int) bool {
	return capacity >= d.target && d.plan.Demand*100 <= d.policy.ReclaimPercent*capacity
}

// leavesSoon reports whether the block serves until its hold ends, shortly.
func (d *decision) leavesSoon(b *block) bool {
	return b.onHold() && b.serving() && !b.Hold.Until.IsZero() && b.Hold.Until.Before(d.now.Add(holdSoon))
}
