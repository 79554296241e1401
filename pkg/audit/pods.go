package audit

import (
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
)

// checkPods checks the addresses of a node's pods. owners are the pods with addresses that were
// checked before.
func (n *nodeCheck) checkPods(owners map[netip.Addr]Object) {
	for _, p := range n.pods {
		for _, a := range p.ips {
			if first, shared := owners[a]; !shared {
				owners[a] = p.object
			} else if first != p.object {
				n.add(PodsShareAddress, Finding{Object: p.object, Others: []Object{first}, Subject: single(a)},
					"has the address of pod %s/%s", first.Namespace, first.Name)
			}
			if n.view == nil || !n.view.publishes(a) {
				n.podAddress(p, a)
			}
		}
	}
}

// podAddress checks who owns an address that is not in the pool of the pod's node.
func (n *nodeCheck) podAddress(p pod, a netip.Addr) {
	f, reason := Finding{Object: p.object, Subject: single(a)}, PodAddressOfOtherNode
	var says string
	b, other := n.holder(n.node, a), n.publisher(n.node, a)
	switch {
	case other != nil:
		f.Others = []Object{n.assigner(other.name)}
		says = "an address in the pool of " + other.name
		if other.view.BlockAssignment != nil {
			says = "an address of a CIDR that " + other.name + " lists"
		}
	case b != nil && b.Node == n.name:
		return // reported for the CiliumNode
	case b != nil:
		f.Others = []Object{blockObject(b.Name)}
		says = "an address of block " + b.CIDR.String() + " of node " + b.Node
	case n.moving, n.notOurs(), n.servedElsewhere(n.node, a):
		return // its pods have their addresses from elsewhere
	default:
		reason, says = PodAddressUnowned, "an address of no block and no pool entry"
		if n.view != nil && n.view.BlockAssignment != nil {
			says = "an address of no block and of no CIDR in " + n.list
		}
	}
	n.reported[single(a)] = true
	n.add(reason, f, "runs on %s with %s", n.name, says)
}

// clusterAddresses reports the addresses in use on a node that belong to a node or Service, except
// that the agent itself uses its own.
func (n *nodeCheck) clusterAddresses() {
	for addr, user := range n.inUse {
		for _, r := range n.cluster.Ledger.Excluded(single(addr)) {
			if r.Offered() || n.view != nil && slices.Contains(n.view.Own, addr) && r.By == (exclude.Claimant{Kind: exclude.CiliumNode, Name: n.name}) {
				continue
			}
			n.add(ClusterAddressInUse, n.at(single(addr), "by "+user), "belongs to %s", r.By)
		}
	}
}
