package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// askForPools makes the pods of a world request the Cilium pools blue and green. Users create
// and delete the PodIPPools that serve them, some of which exist from the start. Unless both is
// set, these have IPv4 only.
func askForPools(seed uint64, c *world.Config, both bool) {
	r := rand.New(rand.NewPCG(seed, 11))
	size := int32(29 + r.IntN(2))
	c.Families, c.Pools[0].Spec.IPv6 = nil, nil
	c.Asking = &world.Asking{Served: []*v1alpha1.PodIPPool{
		served("blue", "blue", size, "10.0.5.0/28"), served("green", "green", 30, "10.0.6.0/28"),
		served("more-blue", "blue", 30, "10.0.7.0/29"),
		// These have the same name and never exist at the same time.
		served("either", "blue", 30, "10.0.8.0/29"), served("either", "green", 30, "10.0.8.0/29"),
	}}
	if both {
		haveBoth(c, "fd00::/122")
		for i, p := range c.Asking.Served {
			p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: fmt.Sprintf("fd00::5%d0/124", min(i, 3))}}}
		}
	}
	for _, pool := range c.Asking.Served[:2] {
		if r.IntN(4) > 0 {
			c.Pools = append(c.Pools, pool)
		}
	}
	if r.IntN(3) == 0 {
		c.Reserve["blue"] = 1 + r.IntN(2)
	}
	c.Faults |= world.PoolEdits
	c.Settings.KeepCiliumPools, c.Upgraded.KeepCiliumPools = true, true
}

// served returns a PodIPPool that serves a Cilium pool.
func served(name, ciliumPool string, size int32, cidr string) *v1alpha1.PodIPPool {
	p := pool(name, 1, size, cidr)
	p.Spec.CiliumPoolName = ciliumPool
	return p
}

// picked: a pod comes with labels that alone choose its pool.
func (d *director) picked() {
	leader, _, ok := d.awake()
	if !ok {
		return
	}
	node, _ := d.nodes()
	d.await(200, func() bool {
		return d.w.Serves(node) && d.w.API().Get(world.KindCiliumPool, "blue") != nil
	}, works(leader), lives(node))
	d.one(is(world.CiliumPoolEdit, "people", "pick-pods=blue"))
	d.one(func(a world.Action) bool {
		return a.Verb == world.PodNew && a.Who == node && strings.HasSuffix(a.What, "=label-blue")
	})
	d.drive(100, never, works(leader), lives(node))
}
