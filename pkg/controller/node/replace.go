package node

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// mayReplace reports whether blocks of a family of the node are replaceable at all.
func (o *observation) mayReplace(fo *state.Share) bool {
	return o.CiliumNode != nil && fo.State.BlockDemand == nil && fo.Paused == "" && len(fo.Pools) > 0 && o.Node != nil
}

// replaceFirst requests the replacement of the first blocks of a node that late labels
// moved to another pool, while none of their addresses is in use: before an agent has
// read them. The node gets a block of the new pool first, and the old ones leave by the
// handshake: their addresses are marked before the agent starts, which then avoids
// them. If the agent was faster, its own address shows that, and the block stays.
func (r *Reconciler) replaceFirst(o *observation, fo *state.Share) {
	s := &fo.State
	if !o.mayReplace(fo) {
		return
	}
	s.Fresh = o.CiliumNode.Untouched() && !r.Agents.Runs(o.Name)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		j := slices.IndexFunc(o.Blocks, func(k crd.Block) bool { return k.CIDR == b.CIDR })
		first := r.memory.isFirst(o.CiliumNode, o.Blocks[j].UID)
		if b.Request != expand.None && b.Request != expand.NodeUnselected || b.Conflict || o.Blocks[j].Pool == fo.Ruling() || s.Uses(b.CIDR) {
			continue
		}
		switch {
		case b.Phase == ipalloc.Draining && b.Reason == expand.PoolChanged && s.MayLeave(b.CIDR),
			b.Phase == ipalloc.InService && s.Fresh && first && r.canReplace(o, fo):
			b.Request, b.Hold = expand.PoolChanged, expand.Hold{}
		}
	}
}

// canReplace reports whether the pool that rules a node has a block for it, or has
// assigned it one. Otherwise the node waits for one.
func (r *Reconciler) canReplace(o *observation, fo *state.Share) bool {
	if slices.ContainsFunc(o.Blocks, func(b crd.Block) bool {
		return b.Pool == fo.Ruling() && b.Phase == ipalloc.InService && ipalloc.FamilyOf(b.CIDR.Addr()) == fo.Family
	}) {
		return true
	}
	cut, ok := fo.Pools[0].Cut(fo.Family)
	if ok && r.Ledger.Free(cut) > 0 {
		return true
	}
	o.replacing[fo.Family] = append(o.replacing[fo.Family], fo.Pools[0])
	return false
}
