package state

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// requestUnselected requests the drain of blocks whose pools no longer select the node,
// which may be nil, and are configured to drain such blocks.
func (c *Cluster) requestUnselected(share *Share, node *corev1.Node) {
	if !c.mayMoveOff(share, node) {
		return
	}
	for i := range share.State.Blocks {
		b := &share.State.Blocks[i]
		if b.Request == expand.None && !b.Conflict && !replaced(b) && c.unselects(b, node) {
			b.Request = expand.NodeUnselected
		}
	}
}

// mayMoveOff reports whether a node may move off pools: another pool serves it, and its
// labels are final. An agent that is assigned whole blocks keeps its own addresses as long
// as its Node exists.
func (c *Cluster) mayMoveOff(share *Share, node *corev1.Node) bool {
	return node != nil && len(share.Pools) > 0 && share.State.BlockDemand == nil && crd.StartupTaint(node, c.StartupTaints) == ""
}

// unselects reports whether the pool of a block does not select the node and drains such
// blocks.
func (c *Cluster) unselects(b *expand.Block, node *corev1.Node) bool {
	pool := c.PoolOf(b.CIDR)
	return pool != nil && !pool.Frozen() && pool.DrainUnselected && !pool.Selector.Matches(labels.Set(node.Labels))
}

// replaced reports whether a leaving block is one that no agent has read yet: other rules
// apply to that drain.
func replaced(b *expand.Block) bool {
	return b.Phase == ipalloc.Draining && b.Reason == expand.PoolChanged
}
