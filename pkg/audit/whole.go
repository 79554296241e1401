package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// These check nodes with agents that are assigned whole blocks, in multi-pool and kubernetes mode:
// there is no pool of addresses, and no handshake.

// poolNote names the Cilium pool that a CIDR is listed for, if its block is for another one.
func (cn *CiliumNode) poolNote(cidr netip.Prefix) string {
	if cn.BlockAssignment == nil || cn.Lists(cidr) {
		return ""
	}
	for _, a := range cn.Allocated {
		if a.CIDR.Masked() == cidr {
			return "for Cilium's pool " + a.Pool
		}
	}
	return ""
}

// gives reports whether the agent allocates from a CIDR that contains a: because it is assigned, or
// because the agent runs with it anyway.
func (cn *CiliumNode) gives(a netip.Addr) bool {
	holds := func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(cn.Listed(), holds) || slices.ContainsFunc(cn.BlockAssignment.Runs, holds)
}

// wholeOf checks the CIDRs assigned to one node, on their own.
func (c *check) wholeOf(n *node) {
	c.twiceOf(n)
	if w := n.view.BlockAssignment; len(w.LeftCIDRs)+w.LeftAddresses > 0 {
		c.found(LeftFromCRDMode, c.allocationObject(n.name), "has %d podCIDRs and %d addresses in spec.ipam.pool, which its agent does not read",
			len(w.LeftCIDRs), w.LeftAddresses)
	}
	c.annotationsOf(n)
	c.runsOf(n)
}

// twiceOf checks whether two CIDRs of a node overlap. A pool of the agent allocates from each
// CIDR separately (pkg/ipam/pool.go, Cilium v1.20.1).
func (c *check) twiceOf(n *node) {
	var before []netip.Prefix
	add := func(cidr netip.Prefix) {
		for _, other := range before {
			if other.Overlaps(cidr) {
				c.add(Finding{Reason: ListedTwice, Object: c.allocationObject(n.name), Subject: cidr,
					Note: "shares addresses with " + other.String(), Says: "more than once in " + c.list})
				break
			}
		}
		before = append(before, cidr)
	}
	if len(n.view.Allocated) == 0 {
		for _, cidr := range n.view.PodCIDRs {
			add(cidr)
		}
	}
	for _, a := range n.view.Allocated {
		add(a.CIDR.Masked())
	}
}

// annotationsOf reports blocks in annotations of a Node that have no effect, or that its agent does
// not use: the Node keeps them, as in kubernetes mode.
func (c *check) annotationsOf(n *node) {
	for _, cidr := range n.view.BlockAssignment.Annotated {
		own := c.byCIDR[cidr]
		if own == nil || own.Node != n.name {
			continue
		}
		f := Finding{Object: nodeObject(n.name), Others: []Object{blockObject(own.Name)}, Subject: cidr}
		if !n.view.Lists(cidr) {
			f.Reason, f.Says = NodePodCIDRFirst, "in an annotation, and spec.podCIDRs goes first"
			c.add(f)
		}
		if family := ipalloc.FamilyOf(cidr.Addr()); n.view.FamilyDisabled(family) {
			f.Reason, f.Says = FamilyNotRun, fmt.Sprintf("assigned to the Node, whose agent names no address of its own in %s", family)
			c.add(f)
		}
	}
}

// runsOf checks whether the agent runs with the CIDRs of its Node. It writes its own CIDRs into its
// CiliumNode (pkg/nodediscovery/nodediscovery.go, mutateNodeResource, v1.20.1).
func (c *check) runsOf(n *node) {
	for _, cidr := range n.view.BlockAssignment.Runs {
		if n.view.Lists(cidr) {
			continue
		}
		f := Finding{Reason: AgentOnOtherPodCIDR, Object: nodeObject(n.name), Subject: cidr,
			Note: "the Node names " + namedOf(n, cidr), Says: "its agent runs with it, and the Node does not name it"}
		if other := c.heldElsewhere(n, cidr); other != nil {
			f.Others = []Object{blockObject(other.Name)}
			f.Says += "; it shares addresses with block " + other.CIDR.String() + " of node " + other.Node
		}
		c.add(f)
	}
}

// namedOf returns the podCIDR of cidr's family that a Node names.
func namedOf(n *node, cidr netip.Prefix) string {
	for _, p := range n.view.PodCIDRs {
		if ipalloc.FamilyOf(p.Addr()) == ipalloc.FamilyOf(cidr.Addr()) {
			return p.String()
		}
	}
	return "none"
}

// runsWith reports whether the agent runs with a CIDR of the family.
func (cn *CiliumNode) runsWith(f ipalloc.Family) bool {
	return cn.BlockAssignment != nil && slices.ContainsFunc(cn.BlockAssignment.Runs, func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) == f })
}

// wants reports whether the agent needs the family, as far as it has reported.
func (cn *CiliumNode) wants(f ipalloc.Family) bool {
	if cn.BlockAssignment == nil || cn.BlockAssignment.SingleBlock {
		return !cn.FamilyDisabled(f)
	}
	return !cn.BlockAssignment.Reported() || cn.BlockAssignment.Requested[f] > 0
}

// wholeBlock checks a block of a node with an agent that is assigned whole ones.
func (c *check) wholeBlock(n *node, b *crd.Block) {
	f := Finding{Object: blockObject(b.Name), Others: []Object{c.allocationObject(n.name)}, Subject: b.CIDR}
	listed := slices.ContainsFunc(n.view.Listed(), b.CIDR.Overlaps) // as part of another, too
	switch {
	case b.Phase == ipalloc.CoolingDown && listed:
		f.Reason, f.Says = CoolingBlockPublished, fmt.Sprintf("cools down, and %s of %s %s has it", c.list, c.kind, n.name)
	case b.Phase == ipalloc.InService && !listed && c.shouldBeListed(n, b):
		f.Reason = BlockNotPublished
		f.Says = fmt.Sprintf("not in %s of %s %s, created %s ago", c.list, c.kind, n.name, c.now.Sub(b.Created).Round(time.Second))
	case b.Phase == ipalloc.Draining && !n.view.BlockAssignment.SingleBlock && listed && c.drainStands(n, b, 1):
		f.Reason = DrainStuck
		f.Says = fmt.Sprintf("drains (%s) since %s, with nothing of it in use, and is listed still; nothing has moved for %s, and %s",
			b.Reason, b.Since.UTC().Format(time.RFC3339), c.now.Sub(n.view.lastChange()).Round(time.Second), n.agent())
	default:
		return
	}
	c.add(f)
}

// shouldBeListed excludes, besides the exceptions of shouldBePublished, a block that the agent may
// just have returned, and blocks that other findings explain.
func (c *check) shouldBeListed(n *node, b *crd.Block) bool {
	if !c.shouldBePublished(n, b) || slices.Contains(n.view.BlockAssignment.Annotated, b.CIDR) {
		return false
	}
	if n.view.BlockAssignment.SingleBlock {
		return !n.view.runsWith(ipalloc.FamilyOf(b.CIDR.Addr())) || n.view.ofFamily(ipalloc.FamilyOf(b.CIDR.Addr())) > 0
	}
	return n.view.Changed.IsZero() || c.now.Sub(n.view.Changed) >= c.StuckAfter
}
