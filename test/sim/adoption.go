package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// beginElsewhere starts a world in another IPAM: each node has CIDRs among 16 addresses of its own
// per family, in a range that the pool also has. Users do no damage in worlds with this trait,
// because here a migration must be able to finish.
func beginElsewhere(seed uint64, c *world.Config, t traits) {
	r := rand.New(rand.NewPCG(seed, 7))
	families := []ipalloc.Family{ipalloc.IPv4}
	c.Families, c.Pools[0].Spec.IPv6 = nil, nil
	c.Pools[0].Spec.IPv4.CIDRs = append(c.Pools[0].Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.0.4.0/26"})
	if t.has(dual) {
		families = []ipalloc.Family{ipalloc.IPv4, ipalloc.IPv6}
		haveBoth(c, "fd00::/122", "fd00::400/122")
	}
	m := &world.Move{
		From:  []adopt.Source{adopt.ClusterPool, adopt.Kubernetes, adopt.MultiPool, adopt.CRD}[r.IntN(4)],
		Pools: map[netip.Prefix]string{},
	}
	for i := range c.Nodes {
		var cidrs []netip.Prefix
		for _, f := range families {
			some := given(r, m.From, f, 16*i)
			if cidrs = append(cidrs, some...); m.From == adopt.MultiPool {
				m.Pools[some[1]] = "blue"
			}
		}
		m.Given = append(m.Given, cidrs)
	}
	c.Move, c.Reserve = m, map[string]int{crd.DefaultCiliumPool: 1 + r.IntN(2), "blue": 1}
	c.Faults &^= world.NodeGone | world.CiliumNodeGone | world.PoolEdits | world.BlockEdits | world.Torn | world.Edits |
		world.Restore | world.AgentMute
}

// haveBoth makes all agents run both families and gives the first pool these IPv6 ranges.
func haveBoth(c *world.Config, cidrs ...string) {
	c.Families = []agent.Family{agent.IPv4, agent.IPv6}
	ranges := &v1alpha1.IPv6Ranges{BlockSize: 125}
	for _, cidr := range cidrs {
		ranges.CIDRs = append(ranges.CIDRs, v1alpha1.PoolCIDR{CIDR: cidr})
	}
	c.Pools[0].Spec.IPv6 = ranges
}

// given returns the CIDRs that a node has from the other IPAM in one family, starting at the
// address numbered first.
func given(r *rand.Rand, from adopt.Source, f ipalloc.Family, first int) []netip.Prefix {
	at := func(offset, bits int) netip.Prefix {
		if f == ipalloc.IPv6 {
			return netip.MustParsePrefix(fmt.Sprintf("fd00::4%02x/%d", first+offset, 96+bits))
		}
		return netip.MustParsePrefix(fmt.Sprintf("10.0.4.%d/%d", first+offset, bits))
	}
	switch from {
	case adopt.MultiPool:
		return []netip.Prefix{at(8, 29), at(0, 30), at(4, 30)}[:max(2, 1+r.IntN(3))]
	case adopt.CRD:
		return []netip.Prefix{at(0, 29), at(8, 30)}[:1+r.IntN(2)]
	}
	return []netip.Prefix{at(0, 28+r.IntN(3))}
}
