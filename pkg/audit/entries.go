package audit

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// entries checks who owns each address of a node's pool.
func (n *nodeCheck) entries() {
	for _, a := range n.view.published() {
		if len(n.index.nodesByAddress[a]) > 1 {
			n.onTwoNodes(a)
		} else {
			n.entry(a)
		}
	}
	keys := n.view.Addresses
	for i, a := range keys.NonCanonical {
		reason := PoolEntryMalformed
		message := "in the pool under a key that is not its canonical form"
		_, also := keys.Pool[a]
		if also || slices.Contains(keys.NonCanonical[i+1:], a) || slices.Contains(keys.NonCanonical[:i], a) {
			reason = AddressTwiceInPool
			message = "in the pool under two keys"
		}
		n.add(reason, n.at(ipalloc.Single(a), ""), "%s", message)
	}
	if len(keys.Unreadable) > 0 {
		n.add(PoolEntryUnreadable, n.about(), "its pool has keys that are no addresses: %s", suggest.Few(keys.Unreadable))
	}
}

// onTwoNodes reports the node that does not hold the address's block, if one does.
func (n *nodeCheck) onTwoNodes(a netip.Addr) {
	publishers := n.index.nodesByAddress[a]
	wrong := publishers[0]
	if b := n.index.holder(wrong, a); b != nil && b.Node == wrong.name {
		wrong = publishers[1]
	}
	f := Finding{Object: n.index.assigner(wrong.name), Subject: ipalloc.Single(a), Note: wrong.inUse[a]}
	var names []string
	for _, p := range publishers {
		names = append(names, p.name)
		if p != wrong {
			f.Others = append(f.Others, n.index.assigner(p.name))
		}
	}
	n.add(AddressOnTwoNodes, f, "in the pools of %s%s", suggest.FirstBy(" and ", 5, names), n.index.staleFirst(names...))
}

// entry checks an address that only this node publishes.
func (n *nodeCheck) entry(a netip.Addr) {
	f := n.at(ipalloc.Single(a), n.inUse[a])
	if b := n.index.holder(n.node, a); b != nil {
		if b.Node != n.name { // assignedBlocks checks the node's own
			f.Others = []Object{blockObject(b.Name)}
			n.add(PoolEntryOfOtherNode, f, "in the pool, and in block %s of node %s%s", b.CIDR, b.Node, n.index.staleFirst(n.name))
		}
		return
	}
	if slices.ContainsFunc(n.view.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return // cidrs reports the podCIDR
	}
	pools := n.index.poolsWith(a)
	if len(pools) == 0 {
		n.add(ForeignPoolEntry, f, "in the pool, in no block and in no PodIPPool")
		return
	}
	f.Others = []Object{poolObject(pools[0])}
	n.add(PoolEntryWithoutBlock, f, "in the pool, and in no block, though PodIPPool %s gives it out", pools[0])
}

// cidrs checks every CIDR that a node lists.
func (n *nodeCheck) cidrs() {
	for _, b := range n.view.BadFields {
		n.add(FieldUnreadable, n.at(netip.Prefix{}, b.Path), "cannot be read: %s", b)
	}
	for _, cidr := range n.view.ListedInAnyPool() {
		f := n.at(cidr, "")
		if pool := n.view.ListedFor(cidr); pool != "" {
			f.Note = "for Cilium's pool " + pool
		}
		if block := n.index.byCIDR[cidr]; block != nil && block.Node == n.name {
			continue
		}
		block := n.index.heldElsewhere(n.node, cidr)
		if block == nil && n.moving {
			continue // service reports the Node
		}
		switch {
		case block != nil:
			n.reported[cidr] = true
			f.Others = []Object{blockObject(block.Name)}
			n.add(PodCIDROfOtherNode, f, "in %s, and shares addresses with block %s of node %s%s", n.index.listField, block.CIDR, block.Node, n.index.staleFirst(n.name))
		case slices.ContainsFunc(n.pools, func(p *crd.Pool) bool { return p.OnGrid(cidr) && p.ServesCiliumPool(n.view.ListedFor(cidr)) }):
			n.add(PodCIDRWithoutBlock, f, "in %s, and there is no such PodIPBlock", n.index.listField)
		default:
			n.add(ForeignPodCIDR, f, "in %s, and no block of a pool of this node", n.index.listField)
		}
	}
}

// used checks that addresses in use on a node are in its pool. It skips addresses that checkPods
// reports for a pod.
func (n *nodeCheck) used() {
	message := "in use and not in the pool"
	if n.view.BlockAssignment != nil {
		message = "in use and in no CIDR of " + n.index.listField
	}
	for a, user := range n.inUse {
		if !n.view.mayUse(a) && !n.reported[ipalloc.Single(a)] && !n.moving {
			n.add(AddressOutsidePool, n.at(ipalloc.Single(a), user), "%s", message)
		}
	}
}

// acrossNodes checks addresses that two nodes both have.
func acrossNodes(x *index, found *findings) {
	used := map[netip.Addr]*node{}
	listed := ipalloc.NewSpace()
	for _, n := range x.nodes {
		if n.view == nil {
			continue
		}
		f := Finding{Object: x.assigner(n.name)}
		for a, user := range n.view.Used {
			if first := used[a]; first != nil {
				f.Others = []Object{x.assigner(first.name)}
				f.Subject = ipalloc.Single(a)
				f.Note = user
				found.add(AddressUsedTwice, f, "reported in use by the agents of %s and %s%s", first.name, n.name, x.staleFirst(first.name, n.name))
			} else {
				used[a] = n
			}
		}
		for _, cidr := range n.view.ListedInAnyPool() {
			conflict := conflictOf(listed.Restore(ipalloc.Held{CIDR: cidr.Masked(), Owner: ipalloc.Owner{Node: n.name}}))
			if conflict == nil || conflict.Old.Owner.Node == n.name {
				continue
			}
			holder := x.byName[conflict.Old.Owner.Node]
			if n.reported[cidr] || holder.reported[conflict.Old.CIDR] {
				continue
			}
			f.Others = []Object{x.assigner(holder.name)}
			f.Subject = cidr
			f.Note = "shares addresses with " + conflict.Old.CIDR.String()
			found.add(PodCIDROnTwoNodes, f, "in %s, and in those of %s%s", x.listField, holder.name, x.staleFirst(n.name, holder.name))
		}
	}
}

// handshakes checks the release entries of a node.
func (n *nodeCheck) handshakes() {
	for a, status := range n.view.Release {
		begin := n.view.ReleaseSince[a] // at the latest; zero: unknown
		old := !begin.IsZero() && n.index.isOld(begin)
		b := n.index.holder(n.node, a)
		if n.view.BlockAssignment != nil && !old || n.retired(b, a, status) {
			continue
		}
		note := string(status)
		if !begin.IsZero() {
			note = fmt.Sprintf("%s for %s at least", status, n.index.ago(begin))
		}
		n.releaseEntry(a, note, b, status, old)
	}
}

// releaseEntry checks one entry, for an address of block b if that is not nil.
func (n *nodeCheck) releaseEntry(a netip.Addr, note string, b *crd.Block, status expand.ReleaseStatus, old bool) {
	const stale = "with a needless release entry"
	if n.view.BlockAssignment != nil {
		n.add(StaleRelease, n.at(ipalloc.Single(a), note+", which no agent of this mode reads"), stale)
		return
	}
	user, used := n.inUse[a]
	publishes := n.view.mayUse(a)
	if publishes && used && status != expand.DoNotRelease {
		n.add(MarkedInUse, n.at(ipalloc.Single(a), user+", "+note), "in use, and with a release entry")
		return
	}
	if !publishes && (old || status != expand.Marked) {
		// A mark outside the pool makes the agent report, and is gone soon after.
		n.add(StaleRelease, n.at(ipalloc.Single(a), note+", not in the pool"), stale)
		return
	}
	if !old {
		return
	}
	if b == nil || b.Node != n.name {
		n.add(StaleRelease, n.at(ipalloc.Single(a), note+", in no block of this node"), stale)
		return
	}
	paused := ""
	if n.isPaused(b) {
		paused = "; the operator, the node or its pool is paused"
	}
	n.add(StuckHandshake, n.at(ipalloc.Single(a), note), "with a release entry, and %s%s", n.agent(), paused)
}

// retired reports whether an address is the agent's own, which it keeps until it restarts.
func (n *node) retired(b *crd.Block, a netip.Addr, status expand.ReleaseStatus) bool {
	return n.view.Addresses != nil && b != nil && b.Node == n.name && b.Phase == ipalloc.Draining &&
		status == expand.Released && expand.NamesAgent(n.inUse[a])
}
