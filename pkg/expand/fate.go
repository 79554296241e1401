package expand

import "github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"

// fate is what a block's phase, its request and its delay make of it, before the plan. A block in conflict
// neither serves nor returns; before it drains it releases all its addresses.
//
//	               phase        inService  mustLeave  mayReturn  vacates  releases
//	fateServing    InService    yes                                       its unusable addresses
//	fateDelayed    InService    yes                                       its unusable addresses
//	fateMustLeave  InService               yes                            its unusable addresses
//	fateDraining   Draining                           yes                 yes
//	fateVacating   Draining                yes                   yes      yes
//	fateCooling    CoolingDown                        yes
//	fateExpiring   CoolingDown             yes
type fate int

const (
	fateServing   fate = iota // it is in service
	fateDelayed               // it is in service, and must leave, but not yet
	fateMustLeave             // it is in service, and must leave now
	fateDraining              // it drains, and may return to service
	fateVacating              // it drains and must leave, even if the node needs its addresses
	fateCooling               // it cools down, and may return to service
	fateExpiring              // it cools down, and must leave
)

func fateOf(b *Block) fate {
	requested := b.Request != None
	switch b.Phase {
	case ipalloc.Draining:
		if requested {
			return fateVacating
		}
		return fateDraining
	case ipalloc.CoolingDown:
		if requested {
			return fateExpiring
		}
		return fateCooling
	}
	if !requested {
		return fateServing
	}
	if b.Delay.Reason != "" {
		return fateDelayed
	}
	return fateMustLeave
}

// change is how the plan changes a block's phase.
type change int

const (
	changeNone    change = iota
	changeUndrain        // it returns to service
	changeDrain          // it starts, or starts again, to drain
	changeCool           // it starts to cool down
)

// planned returns the fate of the block once the plan is done.
func (b *block) planned() fate {
	switch b.change {
	case changeUndrain:
		return fateServing
	case changeDrain:
		return fateDraining
	case changeCool:
		return fateCooling
	default:
		return b.fate
	}
}

// inService reports whether the block's addresses are capacity once the plan is done.
func (b *block) inService() bool {
	planned := b.planned()
	if b.Conflict || planned != fateServing && planned != fateDelayed {
		return false
	}
	return !b.Unwritable || b.published != 0 && b.change != changeUndrain
}

// mustLeave reports whether the block leaves, or must leave now, and does not return to
// service even if the node needs its addresses.
func (b *block) mustLeave() bool {
	return b.fate == fateMustLeave || b.fate == fateVacating || b.fate == fateExpiring
}

// vacates reports whether even the agent's own addresses leave the block: a person has
// requested its drain. Idleness is no reason to have an agent change its addresses.
func (b *block) vacates() bool { return b.fate == fateVacating && b.Request != PoolChanged }

// releases reports whether a published address of the block must go by the handshake. drainAgain is
// for addresses of a cooling block.
func (b *block) releases(usable bool) bool {
	switch b.fate {
	case fateDraining, fateVacating:
		return true
	case fateCooling, fateExpiring:
		return false
	default:
		return b.Conflict || !usable
	}
}

// leavesByPlan reports whether the block's addresses leave, once the plan is done.
func (b *block) leavesByPlan() bool {
	switch b.planned() {
	case fateDraining, fateVacating:
		return true
	case fateCooling, fateExpiring:
		return false
	default:
		return b.Conflict
	}
}

// mayReturn reports whether a block that leaves can be put back into service.
func (b *block) mayReturn() bool {
	returnable := b.fate == fateDraining || b.fate == fateCooling
	return returnable && !b.Conflict && b.change != changeUndrain
}

// drainEnds reports whether the reason for a block's leaving no longer holds: its node was gone and
// its pods may still have its addresses, or its removal is no longer requested, also of one that has
// cooled down since.
func (b *block) drainEnds() bool {
	if !b.mayReturn() || b.superseded() {
		return false
	}
	if b.fate == fateCooling {
		// An agent returns a whole block again that it does not need.
		return b.Reason == NodeGone || b.Undone && !b.assignment.whole
	}
	switch b.Reason {
	case Reclaim: // of whole blocks none is reclaimed unless it is compacted; one in use was restored
		return b.Pinned || b.assignment.whole && b.Listed
	case Compaction:
		return b.Pinned || b.assignment.notCompacted
	default:
		return true
	}
}

// superseded reports whether a block is surplus: the node was assigned another one,
// because this one's range was draining when its Node came back. An agent with a
// fixed block never gets a second, so this one never returns to service.
func (b *block) superseded() bool {
	return b.assignment.nodeNamesAnother && b.published == 0 && !b.Listed
}

// reclaimable reports whether reclaim may take the block.
func (b *block) reclaimable() bool { return b.change != changeUndrain && !b.anchored && !b.IsKept() }

// keepsUsed reports whether the plan can publish the block's addresses in use.
func (b *block) keepsUsed() bool {
	return !b.Conflict && !b.Orphaned && b.change != changeUndrain && b.Phase != ipalloc.CoolingDown
}

// mayHavePods reports whether an agent may have pods in a block that is not listed, because an agent
// that is assigned addresses still runs, or because the CiliumNode was deleted and created again. A
// block that was listed since was returned: the first agent removes no block from the list, and any
// other only once it has restored its pods. It writes a request before that (updateLocalNode and
// restoreFinished in pkg/ipam/multipool_manager.go, Cilium v1.20.2).
func (b *block) mayHavePods() bool {
	lost := b.assignment.predatesCiliumNode && b.keepsUsed() && b.Request != NodeUnselected && b.Size > 0
	return (b.Leftover || lost) && !b.assignment.wasAssigned
}
