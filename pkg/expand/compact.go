package expand

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// compactionCandidate returns the block that the node can best do without, if any. No other one may be on its
// way. The agent may return blocks that are not in use, so the others in use must do.
func (w *blockShare) compactionCandidate(p *planner) []*block {
	if !w.compactionAllowed() || !w.parkingAllowed() || w.state.regains() {
		return nil
	}
	var least *block
	rest := 0
	for _, b := range p.blocks.all {
		if !b.Listed || b.isUnused() {
			continue
		}
		if w.closed.contains(b) || !b.inService() || b.fate == fateDelayed {
			return nil
		}
		rest += b.allocatable
		if b.compactable() && (least == nil || b.users <= least.users) {
			least = b
		}
	}
	if least == nil || !p.canSpare(least, rest-least.allocatable) {
		return nil
	}
	return []*block{least}
}

// compactionAllowed reports whether a block may be parked only because the node can do without it: no other one is on its way.
func (w *blockShare) compactionAllowed() bool {
	drains := slices.ContainsFunc(w.state.Blocks, func(b Block) bool { return b.Phase == ipalloc.Draining })
	return w.assignment.MayCompact && (drains || !w.input.budget.OtherDrains)
}

// isUnused reports whether the block is in service and no address of it in use.
func (b *block) isUnused() bool { return b.users == 0 && b.inService() }

// compactable reports whether a block may leave because the node can do without it, and has not been closed.
func (b *block) compactable() bool {
	return b.reclaimable() && b.Request == None && b.Closed.Agent == "" && !b.Leftover
}

// notCompacted reports whether a block is not, or no longer, to be parked for compaction alone: it has
// addresses of the agent's own, the agent has restarted since it closed the block, or it closes none. It
// would have to be parked again, after each restart.
func (w *blockShare) notCompacted(b *block, closed bool) bool {
	reopened := w.assignment.Agent != "" && b.Closed.Agent != "" && b.Closed.Agent != w.assignment.Agent
	return b.own > 0 || reopened || !closed && w.state.regains() || !w.compactionAllowed() && b.Closed.Agent == ""
}
