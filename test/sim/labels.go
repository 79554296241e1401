package main

import (
	"math/rand/v2"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// chooseByLabels adds pools for zones, which rule their Nodes, to the one that selects
// all.
func chooseByLabels(seed uint64, c *world.Config) {
	r := rand.New(rand.NewPCG(seed, 12))
	l := &world.Labels{Zones: []string{"east", "west"}, Taint: crd.DefaultStartupTaints()[0]}
	for i, zone := range l.Zones {
		p := pool(zone, 5, int32(29+r.IntN(2)), []string{"10.0.9.0/28", "10.0.10.0/28"}[i])
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{world.ZoneLabel: zone}}
		if v6 := c.Pools[0].Spec.IPv6; v6 != nil && i == 0 {
			p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: v6.BlockSize, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00:9::/123"}}}
		}
		c.Pools = append(c.Pools, p)
	}
	c.Labels = l
	c.Settings.StartupTaints, c.Upgraded.StartupTaints = []string{l.Taint}, []string{l.Taint}
}

// moveOff lets Nodes move off the pool of a zone that they are no longer in, one or two at
// a time.
func moveOff(seed uint64, c *world.Config) {
	r := rand.New(rand.NewPCG(seed, 16))
	for _, p := range c.Pools {
		if p.Spec.NodeSelector != nil {
			p.Spec.UnselectedNodes.Mode = v1alpha1.UnselectedNodesDrain
			p.Spec.UnselectedNodes.MaxConcurrent = []*int32{nil, ptr.To[int32](2)}[r.IntN(2)]
		}
	}
}

// haveOfPools lets Nodes and Services have addresses of pools, in blocks that nodes
// hold and in others.
func haveOfPools(c *world.Config) {
	c.Cluster = &world.Cluster{}
	for _, addr := range []string{"10.0.0.2", "10.0.0.13", "10.0.1.3"} {
		c.Cluster.Addresses = append(c.Cluster.Addresses, netip.MustParseAddr(addr))
	}
	for _, cidr := range []string{"10.0.0.4/30", "10.0.3.0/29"} {
		c.Cluster.Services = append(c.Cluster.Services, netip.MustParsePrefix(cidr))
	}
}
