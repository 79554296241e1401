package audit

import (
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// covers reports the addresses of nodes and Services that a pool covers.
func (c *check) covers(pool *crd.Pool) {
	for _, f := range ipalloc.Families() {
		whole, _ := pool.Whole(f)
		for _, r := range c.excluded.InAll(whole.Ranges) {
			c.add(Finding{Reason: PoolCoversCluster, Object: poolObject(pool.Name), Subject: r.CIDR,
				Note: "of " + r.By.String(), Says: "no pod gets these addresses of nodes or Services"})
		}
	}
}

// clusterAddressesOf reports the addresses in use on a node that belong to a node
// or Service.
func (c *check) clusterAddressesOf(n *node) {
	for addr, user := range n.inUse {
		for _, r := range c.excluded.In(single(addr)) {
			c.add(Finding{Reason: ClusterAddressInUse, Object: c.allocationObject(n.name), Subject: single(addr),
				Note: "by " + user, Says: "belongs to " + r.By.String()})
		}
	}
}
