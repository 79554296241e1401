package world

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// movesOff reports whether a block drains because its pool does not select its node.
func movesOff(b *v1alpha1.PodIPBlock) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining)
	return phaseOf(b) == v1alpha1.BlockDraining && c.Reason == v1alpha1.ReasonNodeUnselected
}

func maxMoves(pool *v1alpha1.PodIPPool) int {
	if n := pool.Spec.UnselectedNodes.MaxConcurrent; n != nil {
		return int(*n)
	}
	return 1
}

// movingBeside returns the other nodes that this process allowed to move off a pool and that,
// as it knows, are still moving.
func (o *Operator) movingBeside(node, pool string) map[string]bool {
	others := map[string]bool{}
	for _, name := range o.w.api.Keys(KindBlock) {
		b := o.w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if by := o.moves[b.UID]; by != "" && by != node && b.Spec.PoolName == pool && o.knowsMove(b) {
			others[by] = true
		}
	}
	return others
}

// stays returns the pools that select a Node, as an operator knows: all of them while the
// Node's labels are not final.
func (o *Operator) stays(name string) map[string]bool {
	node := o.knownNode(name)
	if o.w.cfg.Labels == nil || node == nil {
		return nil
	}
	stays := map[string]bool{}
	for _, pool := range o.w.cfg.Pools {
		stays[pool.Name] = len(node.Spec.Taints) > 0 || selects(pool, node.Labels)
	}
	return stays
}

// knowsMove reports whether a process knows that a block drains because its pool does not
// select its node.
func (o *Operator) knowsMove(b *v1alpha1.PodIPBlock) bool {
	known, ok := o.parts.Node.Ledger.Block(netip.MustParsePrefix(b.Spec.CIDR))
	return ok && known.UID == b.UID && known.Phase == ipalloc.Draining && known.Reason == expand.NodeUnselected
}
