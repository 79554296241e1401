package audit

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// These check nodes with agents that are assigned whole blocks, in multi-pool and kubernetes mode:
// there is no pool of addresses, and no handshake.

// allocatesFrom reports whether the agent allocates from a CIDR that contains a: because it is assigned, or
// because the agent runs with it anyway.
func (cn *ciliumNode) allocatesFrom(a netip.Addr) bool {
	contains := func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(cn.ListedInAnyPool(), contains) || slices.ContainsFunc(cn.BlockAssignment.ActiveCIDRs, contains)
}

// whole checks the CIDRs assigned to one node, on their own.
func (n *nodeCheck) whole() {
	n.listedTwice()
	if w := n.view.BlockAssignment; len(w.LeftCIDRs)+w.LeftAddresses > 0 {
		n.add(LeftFromCRDMode, n.about(), "has %d podCIDRs and %d addresses in spec.ipam.pool, which its agent does not read",
			len(w.LeftCIDRs), w.LeftAddresses)
	}
	n.annotations()
	n.runs()
	n.nodeAgent()
}

// nodeAgent checks what a node agent reports.
func (n *nodeCheck) nodeAgent() {
	w := n.view.BlockAssignment
	if !w.NodeAgent || n.obj == nil {
		return
	}
	if !w.Reported() {
		n.silentNodeAgent()
		return
	}
	for _, f := range ipalloc.Families() {
		if w.Uses(f) && n.index.cluster.Cilium.Get().Disables(n.obj.Labels, f) {
			n.add(FamilySwitchedOff, n.about(), "has a node agent that assigns %s addresses, and Cilium's agent is configured without the family: pods wait for such an address, too", f)
		}
	}
}

// silentNodeAgent reports a node agent that has never reported.
func (n *nodeCheck) silentNodeAgent() {
	if !n.agentSeen || !n.index.isOld(n.view.Created) {
		return
	}
	why := ""
	if len(n.view.Own) > 0 { // else they are link-local
		why = fmt.Sprintf("; Cilium's agent has %s of its own, as in another IPAM mode", n.view.Own[0])
	}
	n.add(NodeAgentSilent, n.about(), "has no report of its node agent%s", why)
}

// listedTwice checks whether two CIDRs of a node overlap. A pool of the agent allocates from each
// CIDR separately (pkg/ipam/pool.go, Cilium v1.20.1).
func (n *nodeCheck) listedTwice() {
	var cidrs []netip.Prefix
	for _, a := range n.view.Allocated {
		cidrs = append(cidrs, a.CIDR.Masked())
	}
	if len(cidrs) == 0 {
		cidrs = n.view.PodCIDRs
	}
	for i, cidr := range cidrs {
		if first := slices.IndexFunc(cidrs[:i], cidr.Overlaps); first >= 0 {
			n.add(ListedTwice, n.at(cidr, "shares addresses with "+cidrs[first].String()), "more than once in %s", n.index.listField)
		}
	}
}

// annotations reports blocks in annotations of a Node that have no effect, or that its agent does
// not use: the Node keeps them, as in kubernetes mode.
func (n *nodeCheck) annotations() {
	for _, cidr := range n.view.BlockAssignment.Annotated {
		block := n.index.byCIDR[cidr]
		if block == nil || block.Node != n.name {
			continue
		}
		f := Finding{Object: nodeObject(n.name), Others: []Object{blockObject(block.Name)}, Subject: cidr}
		if !n.view.ListsForDefaultPool(cidr) {
			n.add(NodePodCIDRFirst, f, "in an annotation, and spec.podCIDRs goes first")
		}
		if family := ipalloc.FamilyOf(cidr.Addr()); n.view.FamilyDisabled(family) {
			n.add(FamilyNotRun, f, "assigned to the Node, whose agent names no address of its own in %s", family)
		}
	}
}

// runs checks whether the agent runs with the CIDRs of its Node. It writes its own CIDRs into its
// CiliumNode (pkg/nodediscovery/nodediscovery.go, mutateNodeResource, v1.20.1).
func (n *nodeCheck) runs() {
	for _, cidr := range n.view.BlockAssignment.ActiveCIDRs {
		if n.view.ListsForDefaultPool(cidr) {
			continue
		}
		named := "none"
		shares := ""
		for _, p := range n.view.PodCIDRs { // one of each family
			if ipalloc.FamilyOf(p.Addr()) == ipalloc.FamilyOf(cidr.Addr()) {
				named = p.String()
			}
		}
		f := Finding{Object: nodeObject(n.name), Subject: cidr, Note: "the Node names " + named}
		if block := n.index.heldElsewhere(n.node, cidr); block != nil {
			f.Others = []Object{blockObject(block.Name)}
			shares = "; it shares addresses with block " + block.CIDR.String() + " of node " + block.Node
		}
		n.add(AgentOnOtherPodCIDR, f, "its agent runs with it, and the Node does not name it%s", shares)
	}
}

// runsWith reports whether the agent runs with a CIDR of the family.
func (cn *ciliumNode) runsWith(f ipalloc.Family) bool {
	return cn.BlockAssignment != nil && slices.ContainsFunc(cn.BlockAssignment.ActiveCIDRs, func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) == f })
}

// wants reports whether the agent needs the family, as far as it has reported.
func (cn *ciliumNode) wants(f ipalloc.Family) bool {
	if cn.BlockAssignment == nil || cn.BlockAssignment.SingleBlock {
		return !cn.FamilyDisabled(f)
	}
	return !cn.BlockAssignment.Reported() || cn.BlockAssignment.Requested[f] > 0
}

// wholeBlock checks a block of a node with an agent that is assigned whole ones.
func (n *nodeCheck) wholeBlock(b *crd.Block) {
	f := aboutBlock(b, n.index.assigner(n.name))
	listed := slices.ContainsFunc(n.view.ListedInAnyPool(), b.CIDR.Overlaps) // as part of another, too
	switch {
	case b.Phase == ipalloc.CoolingDown && listed:
		n.add(CoolingBlockPublished, f, "cools down, and %s of %s %s has it", n.index.listField, n.index.kind, n.name)
	case b.Phase == ipalloc.InService && !listed && n.shouldBeListed(b):
		n.add(BlockNotPublished, f, "not in %s of %s %s, created %s ago", n.index.listField, n.index.kind, n.name, n.index.ago(b.Created))
	case b.Phase == ipalloc.Draining && !n.view.BlockAssignment.SingleBlock && listed:
		n.drain(b, "nothing of it in use, and is listed still")
	}
}

// shouldBeListed excludes, besides the exceptions of shouldBePublished, a block that the agent may
// just have returned, and blocks that other findings explain.
func (n *nodeCheck) shouldBeListed(b *crd.Block) bool {
	if !n.shouldBePublished(b) || slices.Contains(n.view.BlockAssignment.Annotated, b.CIDR) {
		return false
	}
	if f := ipalloc.FamilyOf(b.CIDR.Addr()); n.view.BlockAssignment.SingleBlock {
		return !n.view.runsWith(f) || n.view.ofFamily(f) > 0
	}
	return n.view.Changed.IsZero() || n.index.isOld(n.view.Changed)
}
