package audit

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// blocksOfAll checks blocks on their own, and their Nodes and pools.
func (c *check) blocksOfAll() {
	for i := range c.blocks {
		b := &c.blocks[i]
		f := Finding{Object: blockObject(b.Name), Subject: b.CIDR}
		if err := c.bad[b.Name]; err != nil {
			f.Reason, f.Says = BlockMalformed, err.Error()
			c.add(f)
			continue
		}
		if conflict := c.conflict[b.Name]; conflict != nil {
			f.Reason, f.Others = BlocksOverlap, []Object{blockObject(crd.BlockName(conflict.Old.CIDR))}
			f.Says = fmt.Sprintf("block of node %s shares addresses with %s of node %s, which was first", b.Node, conflict.Old.CIDR, conflict.Old.Owner.Node)
			c.add(f)
		}
		if c.poolByName[b.Pool] == nil {
			c.add(Finding{Reason: BlockWithoutPool, Object: blockObject(b.Name), Others: []Object{poolObject(b.Pool)}, Subject: b.CIDR,
				Says: "block of PodIPPool " + b.Pool + ", which is not there"})
		}
		if !b.Finalized && !b.Deleting && b.Phase != ipalloc.CoolingDown {
			c.add(Finding{Reason: BlockUnprotected, Object: blockObject(b.Name), Subject: b.CIDR,
				Says: "block of node " + b.Node + " without its finalizer"})
		}
		c.blockAndNode(b, c.byName[b.Node])
		c.cooldown(b, c.byName[b.Node])
	}
}

func (c *check) blockAndNode(b *crd.Block, n *node) {
	if b.Phase == ipalloc.CoolingDown || n.obj != nil && (!n.optedOut || n.view != nil) {
		return
	}
	says := "there is no Node " + n.name
	if n.obj != nil {
		says = "Node " + n.name + " says that Cilium does not run on it, and has no CiliumNode"
	}
	c.add(Finding{Reason: BlockWithoutNode, Object: blockObject(b.Name), Others: []Object{nodeObject(n.name)}, Subject: b.CIDR,
		Says: fmt.Sprintf("block %s, and %s", b.Phase, says)})
}

// cooldown checks whether a block cools down for longer than it should.
func (c *check) cooldown(b *crd.Block, n *node) {
	if b.Phase != ipalloc.CoolingDown || c.isPaused(n, b) {
		return
	}
	cooldown := c.cluster.Cooldown(*b)
	over := c.now.Sub(b.Since.Add(cooldown))
	if over < c.StuckAfter {
		return
	}
	c.add(Finding{Reason: CooldownOverdue, Object: blockObject(b.Name), Others: []Object{nodeObject(b.Node)}, Subject: b.CIDR,
		Says: fmt.Sprintf("cools down (%s) since %s, %s longer than its %s", b.Reason, b.Since.UTC().Format(time.RFC3339), over.Round(time.Second), cooldown)})
}

// blocksOf checks that a node's pool and podCIDRs have its blocks. It skips blocks
// that overlap, which have findings of their own.
func (c *check) blocksOf(n *node) {
	published := map[*crd.Block]int{}
	for _, a := range n.view.published() {
		if b := c.holder(n, a); b != nil && b.Node == n.name {
			published[b]++
		}
	}
	for _, b := range n.blocks {
		if c.bad[b.Name] != nil || c.byCIDR[b.CIDR] != b || len(c.space.Overlapping(b.CIDR)) > 0 {
			continue
		}
		if n.view.BlockAssignment != nil {
			c.wholeBlock(n, b)
		} else {
			c.blockOf(n, b, published[b])
		}
	}
}

func (c *check) blockOf(n *node, b *crd.Block, published int) {
	f := Finding{Object: blockObject(b.Name), Others: []Object{c.allocationObject(n.name)}, Subject: b.CIDR}
	listed := n.view.Lists(b.CIDR)
	switch {
	case b.Phase == ipalloc.CoolingDown && (published > 0 || listed):
		f.Reason = CoolingBlockPublished
		f.Says = fmt.Sprintf("cools down, and CiliumNode %s has %d of its addresses in the pool (in podCIDRs: %t)", n.name, published, listed)
	case published > 0 && !listed:
		f.Reason = BlockNotListed
		f.Says = fmt.Sprintf("%d addresses in the pool of CiliumNode %s, and not in its podCIDRs", published, n.name)
	case b.Phase == ipalloc.InService && published == 0 && c.shouldBePublished(n, b):
		f.Reason = BlockNotPublished
		f.Says = fmt.Sprintf("no address in the pool of CiliumNode %s (in podCIDRs: %t), created %s ago", n.name, listed, c.now.Sub(b.Created).Round(time.Second))
	case b.Phase == ipalloc.Draining && c.drainStands(n, b, published):
		f.Reason = DrainStuck
		f.Says = fmt.Sprintf("drains (%s) since %s, with %d addresses left and none in use; nothing has moved for %s, and %s",
			b.Reason, b.Since.UTC().Format(time.RFC3339), published, c.now.Sub(n.view.lastChange()).Round(time.Second), n.agent())
	default:
		return
	}
	c.add(f)
}

// shouldBePublished excludes blocks that have a reason not to be published: a pause, a limit,
// or a block that is new, must leave, or has no address that pods may have.
func (c *check) shouldBePublished(n *node, b *crd.Block) bool {
	l := n.view.Limits
	if n.obj == nil || c.isPaused(n, b) || n.moving || b.Deleting || c.now.Sub(b.Created) < c.StuckAfter || !c.givesFrom(b) {
		return false
	}
	has := n.view.ofFamily(ipalloc.FamilyOf(b.CIDR.Addr()))
	if l.MaxAllocate > 0 && has >= l.MaxAllocate {
		return false
	}
	return n.view.BlockAssignment != nil || has < c.MaxAddresses && l.MaxAboveWatermark <= 0
}

// givesFrom reports whether a block's pool assigns addresses of it to pods.
func (c *check) givesFrom(b *crd.Block) bool {
	pool := c.poolByName[b.Pool]
	return pool != nil && !pool.Inactive && !pool.Frozen() && !pool.Deleting && !pool.Drains(b.CIDR) && pool.UsableCount(b.CIDR) > 0
}

// ofFamily counts the addresses of a family in the pool or, if the agent is assigned whole blocks,
// the ones it can allocate from them.
func (cn *CiliumNode) ofFamily(f ipalloc.Family) int {
	n := 0
	if cn.BlockAssignment != nil {
		for _, p := range cn.PodCIDRs {
			if ipalloc.FamilyOf(p.Addr()) == f {
				n += cn.BlockAssignment.Count(p)
			}
		}
		return n
	}
	for a := range cn.Pool {
		if ipalloc.FamilyOf(a) == f {
			n++
		}
	}
	return n
}

// lastChange is no earlier than the last change. Zero: unknown.
func (cn *CiliumNode) lastChange() time.Time { return cmp.Or(cn.Changed, cn.SeenSince) }

// drainStands reports whether a drain is stuck: neither block nor CiliumNode has changed for long,
// although no address of the block is in use any more. If the time of a change is unknown, so is
// this.
func (c *check) drainStands(n *node, b *crd.Block, published int) bool {
	changed := n.view.lastChange()
	if c.isPaused(n, b) || published == 0 || changed.IsZero() || c.now.Sub(b.Since) < c.StuckAfter || c.now.Sub(changed) < c.StuckAfter {
		return false
	}
	used := func(a netip.Addr) bool { return b.CIDR.Contains(a) }
	if slices.ContainsFunc(n.view.InUse(), used) || slices.ContainsFunc(slices.Collect(maps.Keys(n.inUse)), used) {
		return false
	}
	for a, owner := range n.view.Pool {
		if owner != "" && used(a) {
			return false
		}
	}
	return true
}
