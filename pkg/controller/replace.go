package controller

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// firstBlocks are the blocks that this process has claimed for a CiliumNode which no
// agent had read by then. An agent can have addresses of them from that CiliumNode
// alone.
type firstBlocks struct {
	of     types.UID
	blocks map[types.UID]bool
}

// noteFirstBlock notes a block claimed for a CiliumNode that no agent has read.
func (r *NodeReconciler) noteFirstBlock(o *observation, block types.UID) {
	if !o.view.Untouched() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		r.first = map[string]firstBlocks{}
	}
	if r.first[o.name].of != o.view.UID {
		r.first[o.name] = firstBlocks{of: o.view.UID, blocks: map[types.UID]bool{}}
	}
	r.first[o.name].blocks[block] = true
}

// isFirst reports whether a block was claimed for the CiliumNode as observed, and no
// agent has read that yet.
func (r *NodeReconciler) isFirst(o *observation, block types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.first[o.name]
	if !o.view.Untouched() {
		delete(r.first, o.name)
		return false
	}
	return first.of == o.view.UID && first.blocks[block]
}

// mayReplace reports whether blocks of a family of the node can be replaced at all.
func (o *observation) mayReplace(fo *familyObservation) bool {
	return o.view != nil && fo.state.BlockDemand == nil && fo.paused == "" && len(fo.pools) > 0 && o.node != nil
}

// replaceFirst asks for the first blocks of a node that has come to another pool, as
// its labels came late, while nothing of them is in use: before an agent has read
// them. The node gets a block of the new pool first, and these leave by the handshake:
// their addresses are marked before the agent starts, which then keeps off. Should the
// agent have been faster, its own address says so, and the block stays.
func (r *NodeReconciler) replaceFirst(o *observation, fo *familyObservation) {
	s := &fo.state
	if !o.mayReplace(fo) {
		return
	}
	s.Fresh = o.view.Untouched() && !r.Agents.Runs(o.name)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		j := slices.IndexFunc(o.blocks, func(k crd.Block) bool { return k.CIDR == b.CIDR })
		first := r.isFirst(o, o.blocks[j].UID)
		if b.Request != expand.None || b.Conflict || o.blocks[j].Pool == fo.ruling() || s.Uses(b.CIDR) {
			continue
		}
		switch {
		case b.Phase == ipalloc.Draining && b.Reason == expand.PoolChanged && s.MayLeave(b.CIDR),
			b.Phase == ipalloc.InService && s.Fresh && first && r.canReplace(o, fo):
			b.Request = expand.PoolChanged
		}
	}
}

// canReplace reports whether the pool that rules a node has a block for it, or has
// given it one.
func (r *NodeReconciler) canReplace(o *observation, fo *familyObservation) bool {
	if slices.ContainsFunc(o.blocks, func(b crd.Block) bool {
		return b.Pool == fo.ruling() && b.Phase == ipalloc.InService && ipalloc.FamilyOf(b.CIDR.Addr()) == fo.family
	}) {
		return true
	}
	cut, ok := fo.pools[0].Cut(fo.family)
	return ok && r.Ledger.Free(cut) > 0
}

// replaces reports whether a claim is to replace blocks of another pool.
func (f *familyObservation) replaces() bool {
	return slices.ContainsFunc(f.state.Blocks, func(b expand.Block) bool {
		return b.Phase == ipalloc.InService && b.Request == expand.PoolChanged
	})
}
