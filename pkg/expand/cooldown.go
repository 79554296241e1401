package expand

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// coolEmpty lets blocks cool down if none of their addresses is left on the node. An address in use
// keeps its block even where it has lost its pool entry. Entries of the handshake may be left:
// their removal at the begin of the cooldown changes the CiliumNode, as must happen then
// (docs/contributing/architecture.md).
func (p *planner) coolEmpty() {
	for _, b := range p.blocks.all {
		if !p.cools(b) {
			continue
		}
		reason := Returned
		if b.superseded() { // it was the Node's before this one
			reason = NodeGone
		}
		p.coolDown(b, reason)
	}
}

// cools reports whether this plan lets the block cool down.
func (p *planner) cools(b *block) bool {
	if b.mayHavePods() || b.change != changeNone || b.published > 0 || b.users > 0 || b.Listed {
		return false
	}
	if b.superseded() {
		return b.Phase != ipalloc.CoolingDown
	}
	switch b.Phase {
	case ipalloc.Draining:
		return p.useIsKnown(b)
	case ipalloc.InService:
		return b.Conflict && p.useIsKnown(b) || b.assignment.returnable && !b.assigned
	default:
		return false
	}
}

// useIsKnown reports whether the state shows all addresses of a block that the agent uses. An
// address that it has not reported may be in use, unless it does not run the family.
//
// A block in conflict is not published. But a CiliumNode that a person deleted is restored without
// it. So the agent may still have addresses of a block that is not younger than the CiliumNode,
// until it has had the time to report them.
func (p *planner) useIsKnown(b *block) bool {
	if p.usage.reported || p.state.FamilyDisabled {
		return true
	}
	return b.Conflict && (b.Created.After(p.state.Created) || p.dueOrRequeue(p.state.Created.Add(p.input.policy.AckTimeout)))
}

func (p *planner) coolDown(b *block, reason Reason) {
	b.change = changeCool
	p.plan.CoolDown = append(p.plan.CoolDown, CoolDown{CIDR: b.CIDR, Reason: reason})
}

// forgetReturned has the agent forget blocks that cool down, unless it has. An agent forgets that it has
// returned CIDRs together with the last one of their Cilium pool. If it then sees an older list once more,
// it has them again, and allocates from them until its next update, up to a minute later. An entry
// of the pool without them, even an empty one, takes them away (Cilium v1.20.2, pkg/ipam/multipool_manager.go,
// ciliumNodeUpdated and updateLocalNode).
func (w *blockShare) forgetReturned(p *planner) {
	if w.assignment.SingleBlock {
		return
	}
	for _, b := range p.blocks.all {
		if b.Phase != ipalloc.CoolingDown || b.Listed || b.change != changeNone {
			continue
		}
		if w.assignment.HasEntry || slices.Contains(p.input.memory.Forgotten, b.CIDR) {
			p.nextMemory.Forgotten = append(p.nextMemory.Forgotten, b.CIDR)
			continue
		}
		p.plan.Forget = true
	}
}

// deleteCooled deletes the blocks after their cooldown.
func (p *planner) deleteCooled() {
	for _, b := range p.blocks.all {
		if b.Phase != ipalloc.CoolingDown || b.change != changeNone {
			continue
		}
		if p.state.HasNodeAgent() && !p.usage.reported {
			continue // it may still assign from the block, by an earlier CiliumNode
		}
		if p.dueOrRequeue(b.CooldownUntil) && b.published == 0 && b.users == 0 && !b.Listed {
			p.plan.Delete = append(p.plan.Delete, b.CIDR)
		}
	}
}
