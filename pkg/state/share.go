package state

import (
	"cmp"
	"maps"
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

// poolsFor returns the pools for a node, which may be nil, by Cilium pool, best first.
func (c *Cluster) poolsFor(node *corev1.Node) map[string][]*crd.Pool {
	out := map[string][]*crd.Pool{}
	if node != nil {
		for _, pool := range c.Pools.Match(labels.Set(node.Labels)) {
			out[pool.CiliumPool] = append(out[pool.CiliumPool], pool)
		}
	}
	return out
}

// ciliumPoolsOf returns the Cilium pools to decide on for one family of a node: the default one,
// "", first, then the pools that its CiliumNode lists or requests, that its pods request, that
// unscheduled pods request, if PodIPPools serve them there, and the pools of blocks that it holds. Each has its own blocks and its own demand. As long as the node
// has no CiliumNode, the pools that PodIPPools serve there count too.
func (c *Cluster) ciliumPoolsOf(s *Snapshot, f ipalloc.Family, served map[string][]*crd.Pool) []string {
	if !c.Defaults.CiliumPools {
		return []string{""}
	}
	names := SetOf(append(s.CiliumNode.CiliumPools(), ""))
	if s.CiliumNode == nil {
		for name := range served {
			names[name] = true
		}
	}
	if c.Unscheduled != nil {
		for _, name := range c.Unscheduled.CiliumPools() {
			if len(served[name]) > 0 {
				names[name] = true
			}
		}
	}
	for _, choices := range s.PoolChoices {
		names[choices[f].Pool] = true
	}
	for _, b := range s.Blocks {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == f {
			names[c.CiliumPoolOf(b, s.CiliumNode)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// CiliumPoolOf returns the Cilium pool that a block is for: the pool that it is listed for, because
// its agent knows it under that name, otherwise the pool that its PodIPPool serves. The two differ
// if a PodIPPool was recreated for another Cilium pool.
func (c *Cluster) CiliumPoolOf(b crd.Block, view *ciliumnode.View) string {
	if !c.Defaults.CiliumPools {
		return ""
	}
	listed := view.ListedFor(b.CIDR)
	if pool := c.Pools.Get(b.Pool); pool != nil && listed == "" && (view == nil || !view.Lists(b.CIDR)) {
		return cmp.Or(b.CiliumPool, pool.CiliumPool)
	}
	return listed
}

// servedFor returns the pools, of those that serve a node, that serve one Cilium pool there, best
// first. The Cilium pool of a single pod is served by the pools with an address that is pinned to it.
func (c *Cluster) servedFor(served map[string][]*crd.Pool, ciliumPool string) []*crd.Pool {
	pod := crd.PodOfPool(ciliumPool)
	if pod == "" {
		return served[ciliumPool]
	}
	var out []*crd.Pool
	pins := c.Ledger.Pins.Of(pod)
	for _, pools := range served {
		for _, pool := range pools {
			if slices.ContainsFunc(pins, pool.OnGrid) {
				out = append(out, pool.ForPod(ciliumPool))
			}
		}
	}
	slices.SortFunc(out, crd.ComparePools)
	return out
}

// IsOrphaned reports whether the Cilium pool of a block is unknown: its PodIPPool is gone,
// and it is listed for none. Such a block must not become listed.
func (c *Cluster) IsOrphaned(b crd.Block, view *ciliumnode.View) bool {
	return c.Defaults.CiliumPools && c.Pools.Get(b.Pool) == nil && (view == nil || !slices.Contains(view.Listed(), b.CIDR))
}

// anyFree reports whether one of pools has a free block of a family: of the pool of a single pod, one that
// is pinned to the pod.
func (c *Cluster) anyFree(f ipalloc.Family, pools []*crd.Pool) bool {
	return slices.ContainsFunc(pools, func(p *crd.Pool) bool {
		if p.Pod == "" {
			return c.FreeIn(p.Name, f) > 0
		}
		return slices.ContainsFunc(c.Ledger.Pins.Of(p.Pod), func(cidr netip.Prefix) bool {
			return ipalloc.FamilyOf(cidr.Addr()) == f && p.MayGive(cidr) && len(c.Ledger.HeldIn(cidr)) == 0
		})
	})
}

// FreeIn returns the number of blocks of a family that can be claimed from a pool.
func (c *Cluster) FreeIn(pool string, f ipalloc.Family) uint64 {
	if p := c.Pools.Get(pool); p != nil && !p.Paused {
		if cut, ok := p.Cut(f); ok {
			return c.Ledger.Free(cut)
		}
	}
	return 0
}

// split separates the blocks that are for a Cilium pool from those for others.
func (c *Cluster) split(blocks []crd.Block, ciliumPool string, view *ciliumnode.View) (mine, rest []crd.Block) {
	for _, b := range blocks {
		if c.CiliumPoolOf(b, view) == ciliumPool {
			mine = append(mine, b)
		} else {
			rest = append(rest, b)
		}
	}
	return mine, rest
}

// releaseOf returns the release entries that concern a Cilium pool: entries of its own blocks, and
// for the default pool also entries of no block.
func releaseOf(entries map[netip.Addr]expand.ReleaseStatus, ciliumPool string, mine, rest []crd.Block) map[netip.Addr]expand.ReleaseStatus {
	contains := func(blocks []crd.Block, a netip.Addr) bool {
		return slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.CIDR.Contains(a) })
	}
	out := maps.Clone(entries)
	maps.DeleteFunc(out, func(a netip.Addr, _ expand.ReleaseStatus) bool {
		return !contains(mine, a) && (ciliumPool != "" || contains(rest, a))
	})
	return out
}

func hasFamily(ips []netip.Addr, f ipalloc.Family) bool {
	return slices.ContainsFunc(ips, func(a netip.Addr) bool { return ipalloc.FamilyOf(a) == f })
}

// block returns a block of a share as expand sees it. view is the share's CiliumNode, which may be
// nil; the other fields of the share are set.
func (c *Cluster) block(s *Snapshot, share *Share, view *ciliumnode.View, b crd.Block, now time.Time) expand.Block {
	pool := c.Pools.Get(b.Pool)
	out := expand.Block{
		CIDR: b.CIDR, Created: b.Created, Phase: b.Phase, Reason: b.Reason, Closed: c.Ledger.closedBy(b, share.State.Agent),
		Pinned: slices.Contains(s.pins, b.CIDR), Frozen: pool != nil && pool.Frozen(), Orphaned: c.IsOrphaned(b, s.CiliumNode),
		Undone: b.Undone,
	}
	if c.assignsWhole(view) {
		out.Size = c.size(s, share, view, b, pool)
	} else {
		out.Usable = c.usable(s, share, view, b, pool)
	}
	if view != nil {
		out.Listed = view.Lists(b.CIDR)
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
	if view != nil && view.Lists(b.CIDR) {
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
	listed := view != nil && view.Lists(b.CIDR)
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
// as its Node exists.
func (c *Cluster) mayMoveOff(share *Share, node *corev1.Node) bool {
	return len(share.Pools) > 0 && share.State.BlockAssignment == nil && crd.StartupTaint(node, c.StartupTaints) == ""
}

// isOfEarlierNode reports whether a block cools down because an earlier Node of the name is gone,
// or was claimed for a Node that went and came back before this was seen, and is unused. In
// kubernetes mode the agent may run with the latter.
func (s *Snapshot) isOfEarlierNode(b crd.Block) bool {
	uses := func(p expand.Pod) bool { return slices.ContainsFunc(p.IPs, b.CIDR.Contains) }
	fixed := s.CiliumNode != nil && s.CiliumNode.BlockAssignment != nil && s.CiliumNode.BlockAssignment.SingleBlock
	earlier := CoolsAsNodeGone(b) || s.Node != nil && b.NodeUID != "" && b.NodeUID != s.Node.UID && !fixed
	return earlier && !slices.ContainsFunc(s.Pods, uses) && (s.CiliumNode == nil || !s.CiliumNode.UsesAny(b.CIDR) && !slices.Contains(s.CiliumNode.Listed(), b.CIDR))
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

// assignmentOf returns the blocks and requests of an agent that is assigned whole blocks, for one
// family; nil: it is not.
func assignmentOf(view *ciliumnode.View, f ipalloc.Family, blocks []crd.Block) *expand.BlockAssignment {
	if view.BlockAssignment == nil {
		return nil
	}
	w := &expand.BlockAssignment{Reported: view.BlockAssignment.Reported(), Requested: view.BlockAssignment.Requested[f], SingleBlock: view.BlockAssignment.SingleBlock, NoPreallocation: view.BlockAssignment.PodsOnly}
	for _, p := range view.PodCIDRs {
		if ipalloc.FamilyOf(p.Addr()) != f {
			continue
		}
		w.Assigned = append(w.Assigned, p)
		if !slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.CIDR == p }) {
			w.Foreign += view.BlockAssignment.Count(p)
		}
	}
	return w
}
