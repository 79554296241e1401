package audit

import (
	"net/netip"
)

// podsOf checks the addresses of a node's pods.
func (c *check) podsOf(n *node) {
	for _, p := range n.pods {
		for _, a := range p.ips {
			c.sharedWith(p, a)
			if n.view == nil || !n.view.publishes(a) {
				c.podAddress(n, p, a)
			}
		}
	}
}

// podAddress checks who owns an address that is not in the pool of the pod's node.
func (c *check) podAddress(n *node, p pod, a netip.Addr) {
	f := Finding{Object: p.object, Subject: single(a)}
	b, other := c.holder(n, a), c.publisher(n, a)
	switch {
	case other != nil:
		f.Reason, f.Others = PodAddressOfOtherNode, []Object{c.allocationObject(other.name)}
		f.Says = "runs on " + n.name + " with an address in the pool of " + other.name
		if other.view.BlockAssignment != nil {
			f.Says = "runs on " + n.name + " with an address of a CIDR that " + other.name + " lists"
		}
	case b != nil && b.Node == n.name:
		return // reported for the CiliumNode
	case b != nil:
		f.Reason, f.Others = PodAddressOfOtherNode, []Object{blockObject(b.Name)}
		f.Says = "runs on " + n.name + " with an address of block " + b.CIDR.String() + " of node " + b.Node
	case n.moving, n.notOurs(), c.servedElsewhere(n, a):
		return // its pods have their addresses from elsewhere
	default:
		f.Reason, f.Says = PodAddressUnowned, "runs on "+n.name+" with an address of no block and no pool entry"
		if n.view != nil && n.view.BlockAssignment != nil {
			f.Says = "runs on " + n.name + " with an address of no block and of no CIDR in " + c.list
		}
	}
	n.reported[single(a)] = true
	c.add(f)
}

// servedElsewhere reports whether a pod has its address from another CNI plugin.
func (c *check) servedElsewhere(n *node, a netip.Addr) bool {
	return !n.agentSeen && c.inPools(a) == ""
}

// sharedWith reports a pod that has the address of a pod checked before.
func (c *check) sharedWith(p pod, a netip.Addr) {
	first, shared := c.podWith[a]
	if !shared {
		c.podWith[a] = p.object
		return
	}
	if first == p.object {
		return
	}
	c.add(Finding{Reason: PodsShareAddress, Object: p.object, Others: []Object{first}, Subject: single(a),
		Says: "has the address of pod " + first.Namespace + "/" + first.Name})
}
