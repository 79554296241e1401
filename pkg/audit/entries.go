package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// entriesOf checks who owns each address of a node's pool.
func (c *check) entriesOf(n *node) {
	for _, a := range n.view.published() {
		if len(c.publishes[a]) > 1 {
			c.onTwoNodes(a)
			continue
		}
		c.entry(n, a)
	}
	for i, a := range n.view.NonCanonical {
		reason, says := PoolEntryMalformed, "in the pool under a key that is not its canonical form"
		_, also := n.view.Pool[a]
		if also || slices.Contains(n.view.NonCanonical[i+1:], a) || slices.Contains(n.view.NonCanonical[:i], a) {
			reason, says = AddressTwiceInPool, "in the pool under two keys"
		}
		c.add(Finding{Reason: reason, Object: c.allocationObject(n.name), Subject: single(a), Says: says})
	}
	if len(n.view.Unreadable) > 0 {
		c.found(PoolEntryUnreadable, c.allocationObject(n.name), "its pool has keys that are no addresses: %s", suggest.Few(n.view.Unreadable))
	}
}

// onTwoNodes reports the node that does not hold the address's block, if one does.
func (c *check) onTwoNodes(a netip.Addr) {
	publishers := c.publishes[a]
	wrong := publishers[0]
	if b := c.holder(wrong, a); b != nil && b.Node == wrong.name {
		wrong = publishers[1]
	}
	f := Finding{Reason: AddressOnTwoNodes, Object: c.allocationObject(wrong.name), Subject: single(a)}
	var names []string
	for _, p := range publishers {
		names = append(names, p.name)
		if p != wrong {
			f.Others = append(f.Others, c.allocationObject(p.name))
		}
	}
	f.Note = wrong.inUse[a]
	f.Says = "in the pools of " + strings.Join(names, " and ")
	c.add(f)
}

// entry checks an address that only this node publishes.
func (c *check) entry(n *node, a netip.Addr) {
	f := Finding{Object: c.allocationObject(n.name), Subject: single(a), Note: n.inUse[a]}
	b := c.holder(n, a)
	switch {
	case b != nil && b.Node == n.name:
		return // see blocksOf
	case b != nil:
		f.Reason, f.Others = PoolEntryOfOtherNode, []Object{blockObject(b.Name)}
		f.Says = "in the pool, and in block " + b.CIDR.String() + " of node " + b.Node
	case slices.ContainsFunc(n.view.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }):
		return // reported as the podCIDR it lies in
	default:
		f.Reason, f.Says = ForeignPoolEntry, "in the pool, in no block and in no PodIPPool"
		if pool := c.inPools(a); pool != "" {
			f.Reason, f.Others = PoolEntryWithoutBlock, []Object{poolObject(pool)}
			f.Says = "in the pool, and in no block, though PodIPPool " + pool + " gives it out"
		}
	}
	c.add(f)
}

// cidrsOf checks every CIDR that a node lists.
func (c *check) cidrsOf(n *node) {
	for _, b := range n.view.BadFields {
		c.add(Finding{Reason: FieldUnreadable, Object: c.allocationObject(n.name), Note: b.Path, Says: "cannot be read: " + b.String()})
	}
	for _, cidr := range n.view.Listed() {
		f := Finding{Object: c.allocationObject(n.name), Subject: cidr, Note: n.view.poolNote(cidr)}
		other := c.heldElsewhere(n, cidr)
		own := c.byCIDR[cidr]
		switch {
		case own != nil && own.Node == n.name:
			continue
		case other == nil && n.moving:
			continue // reported for the Node
		case other != nil:
			n.reported[cidr] = true
			f.Reason, f.Others = PodCIDROfOtherNode, []Object{blockObject(other.Name)}
			f.Says = "in " + c.list + ", and shares addresses with block " + other.CIDR.String() + " of node " + other.Node
		case n.view.Lists(cidr) && slices.ContainsFunc(n.pools, func(p *crd.Pool) bool { return p.OnGrid(cidr) }):
			f.Reason, f.Says = PodCIDRWithoutBlock, "in "+c.list+", and there is no such PodIPBlock"
		default:
			f.Reason, f.Says = ForeignPodCIDR, "in "+c.list+", and no block of a pool of this node"
		}
		c.add(f)
	}
}

// heldElsewhere returns a block of another node that overlaps cidr.
func (x *index) heldElsewhere(n *node, cidr netip.Prefix) *crd.Block {
	if b := x.byCIDR[cidr]; b != nil && b.Node != n.name {
		return b
	}
	for _, h := range x.space.Overlapping(cidr) {
		if h.Owner.Node != n.name {
			return x.byCIDR[h.CIDR]
		}
	}
	return nil
}

// usedOf checks that addresses in use on a node are in its pool. It skips addresses that podsOf
// reports for a pod.
func (c *check) usedOf(n *node) {
	for a, who := range n.inUse {
		if n.view.publishes(a) || n.reported[single(a)] || n.moving {
			continue
		}
		says := "in use and not in the pool"
		if n.view.BlockAssignment != nil {
			says = "in use and in no CIDR of " + c.list
		}
		c.add(Finding{Reason: AddressOutsidePool, Object: c.allocationObject(n.name), Subject: single(a), Note: who, Says: says})
	}
}

// acrossNodes checks addresses that two nodes both have.
func (c *check) acrossNodes() {
	used := map[netip.Addr]*node{}
	listed := ipalloc.NewSpace()
	for _, n := range c.nodes {
		if n.view == nil {
			continue
		}
		for a := range n.view.Used {
			if first := used[a]; first != nil {
				c.add(Finding{Reason: AddressUsedTwice, Object: c.allocationObject(n.name), Others: []Object{c.allocationObject(first.name)},
					Subject: single(a), Note: n.view.Used[a], Says: fmt.Sprintf("reported in use by the agents of %s and %s", first.name, n.name)})
			} else {
				used[a] = n
			}
		}
		for _, cidr := range n.view.Listed() {
			c.listedTwice(listed, n, cidr)
		}
	}
}

func (c *check) listedTwice(listed *ipalloc.Space, n *node, cidr netip.Prefix) {
	held := ipalloc.Held{CIDR: cidr.Masked(), Owner: ipalloc.Owner{Node: n.name}}
	conflict := conflictOf(listed.Restore(held))
	if conflict == nil || conflict.Old.Owner.Node == n.name {
		return
	}
	other := conflict.Old.Owner.Node
	if n.reported[cidr] || c.byName[other].reported[conflict.Old.CIDR] {
		return
	}
	c.add(Finding{Reason: PodCIDROnTwoNodes, Object: c.allocationObject(n.name), Others: []Object{c.allocationObject(other)}, Subject: cidr,
		Note: "shares addresses with " + conflict.Old.CIDR.String(), Says: "in " + c.list + ", and in those of " + other})
}
