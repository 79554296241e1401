package expand

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// budgetWait is the requeue delay while a due reclaim lacks budget: the node's state
// does not say when the budget refills.
const budgetWait = 10 * time.Second

// delaySoon is how near the end of a delay must be for the block's replacement to be
// kept. A window tonight is no reason to keep an idle block all day.
const delaySoon = time.Hour

// drain starts, or starts again, to drain a block.
func (p *planner) drain(b *block, reason Reason) {
	b.change = changeDrain
	p.plan.Drain = append(p.plan.Drain, Drain{CIDR: b.CIDR, Reason: reason})
}

// drainRequested drains the blocks that must go, once the others cover the target with
// addresses that are or can be published now, or as much of it as the node's limits allow. An
// empty block needs no replacement: it serves no pod. coolEmpty cools one in conflict down without
// a drain.
func (p *planner) drainRequested(covered bool) {
	covered = covered || p.coveredAtLimit()
	for _, b := range p.blocks.all {
		if b.fate != fateMustLeave {
			continue
		}
		mayDrain := covered
		if b.empty() {
			mayDrain = !b.Conflict
		}
		if mayDrain {
			p.drain(b, b.Request)
		}
	}
}

// coveredAtLimit reports whether the node can have no more addresses, and the rest is enough for
// its pods. Keeping the block that must leave would not add to its reserve, either.
func (p *planner) coveredAtLimit() bool {
	grows := p.blocks.serviceChanges() || p.plan.Claim.Addresses > 0
	return !grows && p.plan.Capacity-p.closed.free >= max(p.usage.demand, agentFloor)
}

// drainAgain corrects the reason of drains that a user has requested since, and
// drains cooling-down blocks again if any of their addresses is published or used, or an
// agent runs with them.
func (p *planner) drainAgain() {
	for _, b := range p.blocks.all {
		if b.change == changeUndrain || b.superseded() {
			continue
		}
		switch b.fate {
		case fateVacating:
			if b.Request != b.Reason && !b.empty() {
				p.drain(b, b.Request)
			}
		case fateCooling, fateExpiring:
			if b.published+b.users > 0 || b.assignment.runs {
				p.drain(b, cmp.Or(b.Request, Reclaim))
			}
		}
	}
}

// reclaim drains blocks that the node has not needed for long enough.
func (p *planner) reclaim(candidates []*block, reason Reason) {
	if p.input.policy.ReclaimDisabled || !p.usage.trusted {
		return
	}
	idle := slices.Clone(p.input.memory.IdleSince[:min(len(p.input.memory.IdleSince), len(candidates))])
	for len(idle) < len(candidates) {
		idle = append(idle, p.input.now)
	}

	due := 0
	idleFor := p.input.policy.IdleUnder(p.state.PoolTaken, p.state.Cordoned)
	for due < len(idle) && (p.recalled(candidates[due]) || p.input.now.Sub(idle[due]) >= idleFor) {
		due++
	}
	if due < len(idle) {
		p.requeueAt(idle[due].Add(idleFor))
	}
	starts := p.mayReclaim(due)
	for _, b := range candidates[:starts] {
		if !b.assignment.whole { // an agent counts on its addresses until it has returned it
			p.plan.Capacity -= b.capacity()
		}
		p.drain(b, reason)
	}
	if rest := idle[starts:]; len(rest) > 0 {
		p.nextMemory.IdleSince = rest
	}
}

// mayReclaim is the number of due reclaims that may start.
func (p *planner) mayReclaim(due int) int {
	if due == 0 || p.deficit() > 0 || p.blocks.serviceChanges() {
		return 0
	}
	starts := min(due, max(p.input.budget.Reclaims, 0))
	delay := p.state.ReclaimDelay
	if delay.Reason == "" {
		delay = p.input.budget.ReclaimDelay
	}
	if delay.Reason != "" {
		starts = 0
		p.requeueAt(delay.Until)
	} else if starts < due {
		p.requeueAt(p.input.now.Add(budgetWait))
	}
	return starts
}

// removable are the blocks that the node can do without all together, in the order of their return:
// first the recalled ones, then by fewest addresses in use, then the highest, as claims take the
// lowest. The remaining blocks must cover the target, so that it does not grow again, and stay at
// or below ReclaimPercent; and so must the rest without blocks that a delay keeps for a short time:
// if no block is free to take their place, each window would bring back the blocks reclaimed before
// it.
func (p *planner) removable() []*block {
	var candidates, chosen []*block
	for _, b := range p.blocks.all {
		if b.inService() && b.reclaimable() {
			candidates = append(candidates, b)
		}
	}
	slices.SortFunc(candidates, func(a, b *block) int {
		return cmp.Or(cmp.Compare(p.recallRank(b), p.recallRank(a)), cmp.Compare(a.users, b.users), b.CIDR.Compare(a.CIDR))
	})
	rest := p.plan.Capacity
	blocks := p.blocks.inService()
	later := 0
	for _, b := range p.blocks.all {
		if b.delayEndsSoon(p.input.now) {
			later += b.capacity()
		}
	}
	keeps := false
	for _, b := range candidates {
		if blocks == 1 && p.keepsOne() {
			break
		}
		remaining := rest - b.capacity()
		soon := b.delayEndsSoon(p.input.now)
		switch {
		case !p.canSpare(b, remaining) || soon && keeps: // a leaving block is no better than the one kept for it
		case !soon && !p.canSpare(b, remaining-later):
			keeps = true
		default:
			chosen = append(chosen, b)
			rest = remaining
			blocks--
			if soon {
				later -= b.capacity()
			}
		}
	}
	return chosen
}

// recalled reports whether pods or another node wait for the block, and it is unused. That it is
// not needed again soon, as ReclaimPercent sees to, does not count then.
func (p *planner) recalled(b *block) bool {
	return b.users == 0 && slices.Contains(p.state.Recall, b.CIDR)
}

// recallRank is 1 for blocks that are recalled, -1 for stuck ones, and 0 for others.
func (p *planner) recallRank(b *block) int {
	if b.Unwritable {
		return -1
	}
	if p.recalled(b) {
		return 1
	}
	return 0
}

// canSpare reports whether the node can do without a block if it has so many addresses then.
func (p *planner) canSpare(b *block, capacity int) bool {
	return capacity >= p.needs.target && (p.recalled(b) || p.usage.demand*100 <= p.input.policy.ReclaimPercent*capacity)
}

// Recallable returns the blocks that could be recalled from a node now, all together, in the order of
// their return.
func Recallable(now time.Time, policy Policy, s State) []netip.Prefix {
	if s.BlockAssignment.ReturnsByItself() {
		return nil
	}
	s.Recall = nil
	for i := range s.Blocks {
		s.Recall = append(s.Recall, s.Blocks[i].CIDR)
	}
	p := planPublished(&s, &input{now: now, policy: policy})
	p.fillBlocks()
	if policy.ReclaimDisabled || !p.usage.trusted || s.ReclaimDelay.Reason != "" || p.deficit() > 0 {
		return nil
	}
	var out []netip.Prefix
	for _, b := range p.removable() {
		if p.recalled(b) {
			out = append(out, b.CIDR)
		}
	}
	return out
}

// delayEndsSoon reports whether the block serves until its delay ends, shortly.
func (b *block) delayEndsSoon(now time.Time) bool {
	return b.fate == fateDelayed && b.inService() && !b.Delay.Until.IsZero() && b.Delay.Until.Before(now.Add(delaySoon))
}
