package world

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// movesOff reports whether a block drains because its pool does not select its node.
func movesOff(b *v1alpha1.PodIPBlock) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining)
	return phaseOf(b) == v1alpha1.BlockDraining && c.Reason == v1alpha1.ReasonNodeUnselected
}

// phaseOf returns the condition of a block that is True; "": it is in service.
func phaseOf(b *v1alpha1.PodIPBlock) string {
	for _, c := range []string{v1alpha1.BlockCoolingDown, v1alpha1.BlockDraining} {
		if b != nil && meta.IsStatusConditionTrue(b.Status.Conditions, c) {
			return c
		}
	}
	return ""
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

// checkMoves checks a block that begins to drain because its pool does not select its node: that
// the operator knew so, and that no more of the nodes that this process allowed are moving off
// the pool than may at a time.
func (r *writeRules) checkMoves(v Version) {
	old, _ := v.Old.(*v1alpha1.PodIPBlock)
	now, _ := v.New.(*v1alpha1.PodIPBlock)
	if old == nil || now == nil || phaseOf(old) != "" || !movesOff(now) {
		return
	}
	o, node := r.writer, now.Spec.NodeName
	pool, ok := r.api.Get(KindPool, now.Spec.PoolName).(*v1alpha1.PodIPPool)
	if !ok {
		return
	}
	if o.current.stays[pool.Name] && o.stays(node)[pool.Name] {
		r.violate(10, "block %s began to leave node %s, which pool %s selects, or whose labels are not final", v.Key, node, pool.Name)
	}
	if o.moves == nil {
		o.moves = map[types.UID]string{}
	}
	others := o.movingBeside(node, pool.Name)
	o.moves[now.UID] = node
	if len(others) >= maxMoves(pool) {
		r.violate(10, "node %s began to move off pool %s while %v did, and %d may at a time", node, pool.Name, sortedKeys(others), maxMoves(pool))
	}
}
