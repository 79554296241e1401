package audit

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// checkBlocks checks blocks on their own, and their Nodes and pools.
func checkBlocks(x *index, found *findings) {
	for i := range x.allBlocks {
		b := &x.allBlocks[i]
		if err := x.bad[b.Name]; err != nil {
			found.add(BlockMalformed, aboutBlock(b), "%s", err)
			continue
		}
		if conflict := x.conflict[b]; conflict != nil {
			found.add(BlocksOverlap, aboutBlock(b, blockObject(crd.BlockName(conflict.Old.CIDR))),
				"block of node %s shares addresses with %s of node %s, which was first", b.Node, conflict.Old.CIDR, conflict.Old.Owner.Node)
		}
		if x.cluster.Pools.Get(b.Pool) == nil {
			found.add(BlockWithoutPool, aboutBlock(b, poolObject(b.Pool)), "block of PodIPPool %s, which is not there", b.Pool)
		}
		n := &nodeCheck{x, found, x.byName[b.Node]}
		if b.Phase == ipalloc.CoolingDown {
			n.cooldown(b)
			continue
		}
		if !b.Finalized && !b.Deleting {
			found.add(BlockUnprotected, aboutBlock(b), "block of node %s without its finalizer", b.Node)
		}
		if n.obj == nil {
			found.add(BlockWithoutNode, aboutBlock(b, nodeObject(n.name)), "block %s, and there is no Node %s", b.Phase, n.name)
		} else if n.optedOut && n.view == nil {
			found.add(BlockWithoutNode, aboutBlock(b, nodeObject(n.name)), "block %s, and Node %s says that Cilium does not run on it, and has no CiliumNode", b.Phase, n.name)
		}
	}
}

// cooldown checks whether a block cools down for longer than it should.
func (n *nodeCheck) cooldown(b *crd.Block) {
	cooldown := n.index.cluster.Cooldown(*b)
	if end := b.Since.Add(cooldown); n.index.isOld(end) && !n.isPaused(b) {
		n.add(CooldownOverdue, aboutBlock(b, nodeObject(b.Node)), "cools down (%s) since %s, %s longer than its %s",
			b.Reason, b.Since.UTC().Format(time.RFC3339), n.index.ago(end), cooldown)
	}
}

// isPaused reports whether the operator keeps a block unchanged.
func (n *nodeCheck) isPaused(b *crd.Block) bool {
	var view *ciliumnode.View
	if n.view != nil {
		view = n.view.View
	}
	return n.pausedFor(ipalloc.FamilyOf(b.CIDR.Addr()), n.index.cluster.CiliumPoolOf(*b, view))
}

// assignedBlocks checks that a node's pool and podCIDRs have its blocks. It skips blocks
// that overlap, which have findings of their own.
func (n *nodeCheck) assignedBlocks() {
	published := map[*crd.Block]int{}
	for _, a := range n.view.published() {
		if b := n.index.holder(n.node, a); b != nil && b.Node == n.name {
			published[b]++
		}
	}
	for _, b := range n.blocks {
		if n.index.bad[b.Name] != nil || n.index.byCIDR[b.CIDR] != b || len(n.index.space.Overlapping(b.CIDR)) > 0 {
			continue
		}
		if n.view.BlockAssignment != nil {
			n.wholeBlock(b)
		} else {
			n.block(b, published[b])
		}
	}
}

func (n *nodeCheck) block(b *crd.Block, published int) {
	f := aboutBlock(b, n.index.assigner(n.name))
	listed := n.view.ListsForDefaultPool(b.CIDR)
	switch {
	case b.Phase == ipalloc.CoolingDown && (published > 0 || listed):
		n.add(CoolingBlockPublished, f, "cools down, and CiliumNode %s has %d of its addresses in the pool (in podCIDRs: %t)", n.name, published, listed)
	case published > 0 && !listed:
		n.add(BlockNotListed, f, "%d addresses in the pool of CiliumNode %s, and not in its podCIDRs", published, n.name)
	case b.Phase == ipalloc.InService && published == 0 && n.shouldBePublished(b):
		n.add(BlockNotPublished, f, "no address in the pool of CiliumNode %s (in podCIDRs: %t), created %s ago", n.name, listed, n.index.ago(b.Created))
	case b.Phase == ipalloc.Draining && published > 0:
		n.drain(b, fmt.Sprintf("%d addresses left and none in use", published))
	}
}

// shouldBePublished excludes blocks that have a reason not to be published: a pause, a limit,
// or a block that is new, must leave, or has no address that pods may have.
func (n *nodeCheck) shouldBePublished(b *crd.Block) bool {
	l := n.view.Limits
	if n.obj == nil || n.isPaused(b) || n.moving || b.Deleting || b.Drain || !n.index.isOld(b.Created) || !n.poolAssignsFrom(b) {
		return false
	}
	family := n.view.ofFamily(ipalloc.FamilyOf(b.CIDR.Addr()))
	if l.MaxAllocate > 0 && family >= l.MaxAllocate {
		return false
	}
	return n.view.BlockAssignment != nil || family < n.index.settings.Defaults.Policy.MaxAddresses && l.MaxAboveWatermark <= 0
}

// poolAssignsFrom reports whether a block's pool assigns addresses of it to pods.
func (n *nodeCheck) poolAssignsFrom(b *crd.Block) bool {
	pool := n.index.cluster.Pools.Get(b.Pool)
	return pool != nil && !pool.Inactive && !pool.Frozen() && !pool.Deleting && !pool.Drains(b.CIDR) && pool.UsableCount(b.CIDR) > 0
}

// ofFamily counts the addresses of a family in the pool or, if the agent is assigned whole blocks,
// the ones it can allocate from them.
func (cn *ciliumNode) ofFamily(f ipalloc.Family) int {
	n := 0
	if cn.BlockAssignment != nil {
		for _, p := range cn.PodCIDRs {
			if ipalloc.FamilyOf(p.Addr()) == f {
				n += cn.BlockAssignment.Count(p)
			}
		}
		return n
	}
	for a := range cn.Addresses.Pool {
		if ipalloc.FamilyOf(a) == f {
			n++
		}
	}
	return n
}

// drain checks whether the drain of a block is stuck: neither the block nor the CiliumNode has changed
// for long, although no address of the block is in use any more. The drain of a block is not checked
// if the time of a change is unknown. The text usage names the part of the block that the agent still has.
func (n *nodeCheck) drain(b *crd.Block, usage string) {
	changed := cmp.Or(n.view.Changed, n.view.SeenSince) // no earlier than the last change
	if n.isPaused(b) || changed.IsZero() || !n.index.isOld(b.Since) || !n.index.isOld(changed) {
		return
	}
	used := func(a netip.Addr) bool { return b.CIDR.Contains(a) }
	if slices.ContainsFunc(n.view.InUseUnreported(), used) || slices.ContainsFunc(slices.Collect(maps.Keys(n.inUse)), used) {
		return
	}
	for a, owner := range n.view.Published() {
		if owner != "" && used(a) {
			return
		}
	}
	n.add(DrainStuck, aboutBlock(b, n.index.assigner(n.name)), "drains (%s) since %s, with %s; nothing has moved for %s, and %s",
		b.Reason, b.Since.UTC().Format(time.RFC3339), usage, n.index.ago(changed), n.agent())
}

// routes checks that frr-k8s announces the node's blocks, and no others, by the operator's
// FRRConfigurations.
func (n *nodeCheck) routes() {
	routes := n.index.snapshot.Routes
	if routes == nil {
		return
	}
	views := routes.OfNode(n.name)
	if holder := routes.HostnameHolder(n.name); holder != "" {
		views = append(views, routes.OfNode(holder)...)
	}
	var announced []netip.Prefix
	for _, v := range views {
		announced = append(announced, v.Prefixes...)
	}
	slices.SortFunc(announced, netip.Prefix.Compare)
	for _, cidr := range slices.Compact(announced) {
		if b := n.index.byCIDR[cidr]; b == nil || b.Node != n.name {
			n.add(AnnouncedByOtherNode, Finding{Object: nodeObject(n.name), Subject: cidr}, "announces a block that it does not hold")
		}
	}
	if n.obj == nil || n.view == nil {
		return
	}
	for _, b := range n.blocks {
		if n.view.ListsInAnyPool(b.CIDR) {
			n.route(b.CIDR, slices.Contains(announced, b.CIDR))
		}
	}
}

// route checks that a block reaches a neighbor. announced: an FRRConfiguration of the node has it.
func (n *nodeCheck) route(cidr netip.Prefix, announced bool) {
	routes := n.index.snapshot.Routes
	reason := "the API server serves no FRRConfigurations"
	if routes.Known() {
		_, reason = frrconfig.For(n.obj, routes.Templates(), []netip.Prefix{cidr}, routes.HostnameHolder(n.name))
	}
	f := Finding{Object: blockObject(crd.BlockName(cidr)), Others: []Object{nodeObject(n.name)}, Subject: cidr}
	if !announced {
		n.add(BlockNotAnnounced, f, "node %s does not announce it: %s", n.name, cmp.Or(reason, "the operator has not written it"))
	} else if reason != "" {
		n.add(BlockWithoutNeighbor, f, "node %s: %s", n.name, reason)
	}
}
