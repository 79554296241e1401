package expand

import (
	"cmp"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// assignFixed assigns the one block that an agent with a fixed block gets. One that cools
// down has to leave that phase first.
func (d *decision) assignFixed() {
	if len(d.state.BlockDemand.Assigned) > 0 {
		return
	}
	if b := d.fixedBlock(); b != nil && b.Phase != ipalloc.CoolingDown {
		d.assignBlock(b)
	}
}

// fixedBlock returns the block to assign to a node that has none, or nil. Its Node may have
// been deleted under the agent and created again. So a block of which pods have addresses
// comes first, then the oldest: the agent may run with it and not have said so yet.
func (d *decision) fixedBlock() *block {
	var best *block
	for i := range d.blocks {
		b := &d.blocks[i]
		if d.fits(b) && (best == nil || compareFixed(b, best) < 0) {
			best = b
		}
	}
	return best
}

func compareFixed(a, b *block) int {
	return cmp.Or(cmp.Compare(min(b.users, 1), min(a.users, 1)), a.Created.Compare(b.Created), a.CIDR.Compare(b.CIDR))
}

// fits reports whether a block may be the one of a node that has none. An agent that runs
// gets the block it runs with, draining or not, and no other: it would take that when it
// restarts, and its pods would lose connectivity.
func (d *decision) fits(b *block) bool {
	if len(d.state.BlockDemand.Runs) > 0 {
		return d.state.runsWith(b.Block)
	}
	return len(b.Usable) > 0 && (b.serving() || d.readmits(b) || b.users > 0 && b.keepsUsed())
}

// runsWith reports whether an agent whose Node names no CIDR runs with a block that its
// Node can name.
func (s *State) runsWith(b *Block) bool {
	return s.BlockDemand != nil && slices.Contains(s.BlockDemand.Runs, b.CIDR) && !b.Conflict && !b.Orphaned
}

// RunsWithAnother reports whether an agent that is assigned no block runs with a CIDR
// that cannot be assigned: none of the node's blocks has it. Then nothing is.
func (s *State) RunsWithAnother() bool {
	return s.BlockDemand != nil && len(s.BlockDemand.Runs) > 0 &&
		!slices.ContainsFunc(s.Blocks, func(b Block) bool { return s.runsWith(&b) })
}

// superseded reports whether a block is surplus: the node was assigned another one,
// because this one's range was draining when its Node came back. An agent with a
// fixed block never gets a second, so this one never returns to service.
func (d *decision) superseded(b *block) bool {
	w := d.state.BlockDemand
	return w != nil && w.Fixed && len(w.Assigned) > 0 && b.published == 0 && !b.Listed
}
