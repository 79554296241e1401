package state

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// requestUnselected requests the drain of blocks of pools that no longer select the node, which may
// be nil, and are configured to drain such blocks.
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

// requestOfEarlierNode keeps blocks of an earlier Node of the same name from returning to service
// if they are unused and their pools do not select the present one.
func (c *Cluster) requestOfEarlierNode(share *Share, s *Snapshot) {
	for i := range share.State.Blocks {
		b := &share.State.Blocks[i]
		if held, _ := c.Ledger.Block(b.CIDR); s.Node == nil || b.Request != expand.None || !s.isOfEarlierNode(held) {
			continue
		}
		if pool := c.PoolOf(b.CIDR); pool != nil && !pool.Frozen() && !pool.Selector.Matches(labels.Set(s.Node.Labels)) {
			b.Request = expand.NodeUnselected
		}
	}
}

// isOfEarlierNode reports whether a block cools down because an earlier Node of the name is gone,
// or was claimed for a Node that went and came back before this was seen, and is unused. In
// kubernetes mode the agent may run with the latter.
func (s *Snapshot) isOfEarlierNode(b crd.Block) bool {
	uses := func(p expand.Pod) bool { return slices.ContainsFunc(p.IPs, b.CIDR.Contains) }
	fixed := s.CiliumNode != nil && s.CiliumNode.BlockDemand != nil && s.CiliumNode.BlockDemand.Fixed
	earlier := CoolsAsNodeGone(b) || s.Node != nil && b.NodeUID != "" && b.NodeUID != s.Node.UID && !fixed
	return earlier && !slices.ContainsFunc(s.Pods, uses) && (s.CiliumNode == nil || !s.CiliumNode.UsesAny(b.CIDR) && !slices.Contains(s.CiliumNode.Listed(), b.CIDR))
}

// CoolsAsNodeGone reports whether a block cools down because its Node was gone.
func CoolsAsNodeGone(b crd.Block) bool {
	return b.Phase == ipalloc.CoolingDown && b.Reason == expand.NodeGone
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

// replaced reports whether no agent has read a leaving block yet: other rules apply to that drain.
func replaced(b *expand.Block) bool {
	return b.Phase == ipalloc.Draining && b.Reason == expand.PoolChanged
}
