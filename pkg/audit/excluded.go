package audit

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
)

// covers reports the addresses of nodes and Services that a pool covers.
func (c *check) covers(pool *crd.Pool) {
	says := "no pod gets these addresses of nodes or Services"
	if pool.WholeBlocks {
		says = "no node gets a block with one of these addresses of nodes or Services"
	}
	for _, r := range c.cluster.Ledger.ExcludedFrom(pool) {
		c.add(Finding{Reason: PoolCoversCluster, Object: poolObject(pool.Name), Subject: r.CIDR, Note: "of " + r.By.String(), Says: says})
	}
	for _, r := range c.cluster.Ledger.SharedWith(pool) {
		c.add(Finding{Reason: PoolCoversCluster, Object: poolObject(pool.Name), Subject: r.CIDR,
			Note: "of " + r.By.String(), Says: "pods and Services both get addresses of it, and can get the same one"})
	}
}

// clusterAddressesOf reports the addresses in use on a node that belong to a node or
// Service, except that the agent itself uses its own.
func (c *check) clusterAddressesOf(n *node) {
	for addr, user := range n.inUse {
		for _, r := range c.cluster.Ledger.Excluded(single(addr)) {
			if r.Offered() || n.view != nil && slices.Contains(n.view.Own, addr) && r.By == (exclude.Claimant{Kind: exclude.CiliumNode, Name: n.name}) {
				continue
			}
			c.add(Finding{Reason: ClusterAddressInUse, Object: c.allocationObject(n.name), Subject: single(addr),
				Note: "by " + user, Says: "belongs to " + r.By.String()})
		}
	}
}
