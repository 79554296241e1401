package expand

import (
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// freeEmpty lets the blocks cool down of which nothing is left on the node. An
// address in use keeps its block even where it has lost its pool entry. Entries
// of the handshake may be left: to clear them once the block cools down changes
// the CiliumNode, as has to happen then (docs/contributing/architecture.md).
func (d *decision) freeEmpty() {
	for i := range d.blocks {
		b := &d.blocks[i]
		switch {
		case !d.frees(b):
		case d.superseded(b):
			d.free(b, NodeGone) // it was the Node's before this one
		default:
			d.free(b, Returned)
		}
	}
}

// frees reports whether this plan lets the block cool down.
func (d *decision) frees(b *block) bool {
	if d.mayHave(b) || b.undrained || b.drained || b.published > 0 || b.users > 0 || b.Listed {
		return false
	}
	if d.superseded(b) {
		return b.Phase != ipalloc.CoolingDown
	}
	switch b.Phase {
	case ipalloc.Draining:
		return d.useIsKnown(b)
	case ipalloc.InService:
		return b.Conflict && d.useIsKnown(b) || d.givenBack(b)
	default:
		return false
	}
}

// useIsKnown reports whether the state shows everything that the agent uses of a block. An
// address that it has not reported may be in use, unless it does not run the family.
//
// A block in conflict is not published. But a CiliumNode that was deleted by hand is restored
// without it, so of a block that is not younger than the CiliumNode the agent may still have
// addresses, until it has had the time to report them.
func (d *decision) useIsKnown(b *block) bool {
	switch reports := d.state.Created.Add(d.policy.AckTimeout); {
	case d.reported, d.state.NotRun:
		return true
	case !b.Conflict:
		return false
	case b.Created.After(d.state.Created), !d.now.Before(reports):
		return true
	default:
		d.requeueAt(reports)
		return false
	}
}

func (d *decision) free(b *block, why Reason) {
	b.freed = true
	d.plan.Free = append(d.plan.Free, Free{CIDR: b.CIDR, Reason: why})
}

// deleteCooled deletes the blocks whose cooldown is over.
func (d *decision) deleteCooled() {
	for i := range d.blocks {
		b := &d.blocks[i]
		if b.Phase != ipalloc.CoolingDown || b.undrained || b.drained {
			continue
		}
		switch {
		case d.now.Before(b.CooldownUntil):
			d.requeueAt(b.CooldownUntil)
		case b.published == 0 && b.users == 0 && !b.Listed:
			d.plan.Delete = append(d.plan.Delete, b.CIDR)
		}
	}
}

// returnAll lets all blocks of a node that is gone cool down, whatever their
// use: the caller has seen that there is no CiliumNode to use them from.
func (d *decision) returnAll() {
	for i := range d.blocks {
		if b := &d.blocks[i]; b.Phase != ipalloc.CoolingDown {
			d.free(b, NodeGone)
		}
	}
	for a := range d.state.Pool {
		if b := d.blockOf(a); b != nil {
			b.published++
		}
	}
	d.deleteCooled()
}
