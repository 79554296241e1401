package state

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// block returns a block of a share as expand sees it. view is the share's CiliumNode, which may be
// nil; the other fields of the share are set.
func (c *Cluster) block(s *Snapshot, share *Share, view *ciliumnode.View, b crd.Block, now time.Time) expand.Block {
	pool := c.Pools.Get(b.Pool)
	out := expand.Block{
		CIDR: b.CIDR, Created: b.Created, Phase: b.Phase, Reason: b.Reason, Closed: c.closedBy(b),
		Pinned: slices.Contains(s.pins, b.CIDR), Frozen: pool != nil && pool.Frozen(), Orphaned: c.IsOrphaned(b, s.CiliumNode),
		Undone: b.Undone,
	}
	if c.assignsWhole(view) {
		out.Size = c.size(s, share, view, b, pool)
	} else {
		out.Usable = c.usable(s, share, view, b, pool)
	}
	if view != nil {
		out.Listed = view.ListsForDefaultPool(b.CIDR)
		out.Leftover = view.Leftover(b.CIDR)
		out.Parked = out.Listed && slices.Contains(view.Parked(), b.CIDR)
	}
	out.Conflict = !out.Listed && slices.Contains(s.overlapped, b.CIDR)
	out.Request = c.request(s, share, b, pool, out.Conflict)
	if s.otherMode != "" && b.Phase == ipalloc.InService {
		out.Delay = modeDelay(now)
	} else if pool != nil && MayWait(&out) {
		out.Delay = pool.Maintenance.Delay(now)
	}
	if out.Request == expand.NodeUnselected && MayWait(&out) && out.Delay.Reason == "" && !s.Settled { // others may move instead
		out.Delay = expand.Obstacle{Reason: expand.WaitUnsettled, Until: s.Settles}
	}
	if b.Phase == ipalloc.CoolingDown {
		out.CooldownUntil = c.cooldownUntil(share, view, b)
	}
	return out
}

// closedBy returns which run of its node's agent has closed a block: only agents with Cilium pools do.
func (c *Cluster) closedBy(b crd.Block) expand.Closed {
	if !c.Defaults.CiliumPools {
		return b.Closed
	}
	return c.Ledger.closedBy(b, c.Agents.Container(b.Node))
}

// cooldownUntil returns the end of the cooldown of a block. view may be nil.
func (c *Cluster) cooldownUntil(share *Share, view *ciliumnode.View, b crd.Block) time.Time {
	end := b.Since.Add(c.Cooldown(b))
	if view == nil || b.Created.After(share.State.Created) {
		return end
	}
	// The agent of a Node that came back, or of a CiliumNode that was created again, may
	// still need to report that it uses a block of before.
	reported := share.State.Created.Add(c.Defaults.Policy.AckTimeout)
	if reported.After(end) {
		return reported
	}
	return end
}

// assignsWhole reports whether the agent of a CiliumNode, which may be nil, is assigned whole blocks.
func (c *Cluster) assignsWhole(view *ciliumnode.View) bool {
	return view == nil && c.Defaults.WholeBlocks || view != nil && view.BlockAssignment != nil
}

// size returns the number of addresses that pods get of a block that is assigned whole; 0: it must not
// be assigned. An unused block must not once another node's CiliumNode names a part of it: see usable.
func (c *Cluster) size(s *Snapshot, share *Share, view *ciliumnode.View, b crd.Block, pool *crd.Pool) int {
	if view != nil && view.ListsForDefaultPool(b.CIDR) {
		return view.BlockAssignment.Count(b.CIDR)
	}
	if pool == nil || pool.Frozen() || slices.Contains(s.overlapped, b.CIDR) || ipalloc.TooLarge(b.CIDR, true) {
		return 0
	}
	if !share.State.Uses(b.CIDR) && len(c.Ledger.NamedElsewhere(s.Name, b.CIDR)) > 0 {
		return 0
	}
	if view == nil {
		return pool.UsableCount(b.CIDR)
	}
	return view.BlockAssignment.Count(b.CIDR)
}

// usable returns the addresses of a block that may be published. It loses the addresses that another
// node's CiliumNode has come to name since it was claimed, unless they are published, as part of a listed
// block, or in use: no others are published then, so the node must neither count on them nor keep a block
// without others.
func (c *Cluster) usable(s *Snapshot, share *Share, view *ciliumnode.View, b crd.Block, pool *crd.Pool) (addrs []netip.Addr) {
	listed := view != nil && view.ListsForDefaultPool(b.CIDR)
	overlapped := slices.Contains(s.overlapped, b.CIDR)
	switch {
	case overlapped && listed:
		return view.PublishedIn(b.CIDR) // no others are added
	case overlapped, ipalloc.TooLarge(b.CIDR, false):
		return nil // The block controller reports a block that is too large to list.
	case pool != nil && !pool.Frozen():
		addrs = c.Publishable(view, pool, b.CIDR)
	case view != nil: // without a valid pool, keep the published addresses
		addrs = without(view.PublishedIn(b.CIDR), c.Ledger.Exclusions.excludedIn(b.CIDR))
	}
	missing := func(a netip.Addr) bool { return !listed || !view.Publishes(a) }
	var elsewhere []netip.Prefix
	if slices.ContainsFunc(addrs, missing) {
		elsewhere = c.Ledger.NamedElsewhere(s.Name, b.CIDR)
	}
	if len(elsewhere) == 0 {
		return addrs
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		return missing(a) && ContainsAddr(elsewhere, a) && !share.State.Uses(netip.PrefixFrom(a, a.BitLen()))
	})
}

// Publishable returns the addresses of a block of pool that may be published on a node, whose agent
// is not assigned whole blocks. An agent in a mode without pools must not assign addresses of a Cilium pool's block to new pods:
// they would count for the default pool, and the agent could not restore the pod once the
// block is listed for its own pool again. Until that agent has reported, an agent in a mode
// with pools may still be running, with pod addresses that are not reported yet.
func (c *Cluster) Publishable(view *ciliumnode.View, pool *crd.Pool, block netip.Prefix) []netip.Addr {
	if pool.Inactive && view != nil && len(view.Used) > 0 {
		return nil
	}
	return without(pool.Usable(block), c.Ledger.Exclusions.excludedIn(block))
}

// without returns addresses of a block except the ones in prefixes.
func without(addrs []netip.Addr, prefixes []netip.Prefix) []netip.Addr {
	if len(prefixes) == 0 {
		return addrs
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return ContainsAddr(prefixes, a) })
}

// request returns why a block of a share must be returned, if so. pool may be nil.
func (c *Cluster) request(s *Snapshot, share *Share, b crd.Block, pool *crd.Pool, conflict bool) expand.Reason {
	switch {
	case b.Deleting:
		return expand.Deleted
	case pool == nil, pool.Deleting:
		return expand.PoolDeleted
	case draining(b, pool) != expand.None:
		return draining(b, pool)
	case s.Node == nil, pool.Frozen(), pool.Selector.Matches(labels.Set(s.Node.Labels)):
		return expand.None
	case s.isOfEarlierNode(b): // it does not return to service
		return expand.NodeUnselected
	case b.Phase == ipalloc.Draining && b.Reason == expand.PoolChanged: // no agent has read it yet: other rules apply
		return expand.None
	case pool.DrainUnselected && !conflict && c.mayMoveOff(share, s.Node):
		return expand.NodeUnselected
	}
	return expand.None
}

// draining returns whether a block's spec or its CIDR drains it. A frozen pool has no windows and no
// rate: only drains that have begun continue.
func draining(b crd.Block, pool *crd.Pool) expand.Reason {
	if b.Drain && (!pool.Frozen() || b.Phase != ipalloc.InService) {
		return expand.DrainRequested
	}
	if pool.Frozen() && b.Phase == ipalloc.Draining && b.Reason == expand.CIDRDraining {
		return expand.CIDRDraining // a drain that has begun continues: no change cancels it
	}
	if pool.Drains(b.CIDR) {
		return expand.CIDRDraining
	}
	return expand.None
}

// mayMoveOff reports whether a node may move off pools: another pool serves it, and its
// labels are final. An agent that is assigned whole blocks keeps its own addresses as long
// as its Node exists; a node agent has none.
func (c *Cluster) mayMoveOff(share *Share, node *corev1.Node) bool {
	keepsItsOwn := share.State.BlockAssignment != nil && !share.State.HasNodeAgent()
	return len(share.Pools) > 0 && !keepsItsOwn && crd.StartupTaint(node, c.StartupTaints) == ""
}

// isOfEarlierNode reports whether a block cools down because an earlier Node of the name is gone,
// or was claimed for a Node that went and came back before this was seen, and is unused. In
// kubernetes mode the agent may run with the latter.
func (s *Snapshot) isOfEarlierNode(b crd.Block) bool {
	uses := func(p expand.Pod) bool { return slices.ContainsFunc(p.IPs, b.CIDR.Contains) }
	fixed := s.CiliumNode != nil && s.CiliumNode.BlockAssignment != nil && s.CiliumNode.BlockAssignment.SingleBlock
	earlier := CoolsAsNodeGone(b) || s.Node != nil && b.NodeUID != "" && b.NodeUID != s.Node.UID && !fixed
	return earlier && !slices.ContainsFunc(s.Pods, uses) && (s.CiliumNode == nil || !s.CiliumNode.UsesAny(b.CIDR) && !slices.Contains(s.CiliumNode.ListedInAnyPool(), b.CIDR))
}

// CoolsAsNodeGone reports whether a block cools down because its Node was gone.
func CoolsAsNodeGone(b crd.Block) bool {
	return b.Phase == ipalloc.CoolingDown && b.Reason == expand.NodeGone
}

// MayWait reports whether the drain of a block in service was requested in another way than
// by deleting it: maintenance windows never hold back a block that a person deleted.
func MayWait(b *expand.Block) bool {
	switch b.Request {
	case expand.DrainRequested, expand.CIDRDraining, expand.PoolDeleted, expand.NodeUnselected:
		return b.Phase == ipalloc.InService && !b.Conflict
	}
	return false
}
