package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// beginElsewhere lets a world begin in another IPAM: each node was given CIDRs of
// its own 16 addresses in a range that the pool has, too. What people break by
// hand is left to worlds without: here a move has to come to its end.
func beginElsewhere(seed uint64, c *world.Config) {
	r := rand.New(rand.NewPCG(seed, 7))
	c.Families, c.Pools[0].Spec.IPv6 = nil, nil
	c.Pools[0].Spec.IPv4.CIDRs = append(c.Pools[0].Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.0.4.0/26"})
	m := &world.Move{From: []adopt.Source{adopt.ClusterPool, adopt.Kubernetes, adopt.MultiPool, adopt.CRD}[r.IntN(4)]}
	for i := range c.Nodes {
		m.Given = append(m.Given, given(r, m.From, 16*i))
	}
	c.Move = m
	c.Faults &^= world.NodeGone | world.CiliumNodeGone | world.PoolEdits | world.BlockEdits | world.Torn | world.Edits |
		world.Restore | world.AgentMute
}

// given are the CIDRs of a node, from an address on.
func given(r *rand.Rand, from adopt.Source, first int) []netip.Prefix {
	at := func(offset, bits int) netip.Prefix {
		return netip.MustParsePrefix(fmt.Sprintf("10.0.4.%d/%d", first+offset, bits))
	}
	switch from {
	case adopt.MultiPool:
		return []netip.Prefix{at(8, 29), at(0, 30), at(4, 30)}[:1+r.IntN(3)]
	case adopt.CRD:
		return []netip.Prefix{at(0, 29), at(8, 30)}[:1+r.IntN(2)]
	}
	return []netip.Prefix{at(0, 28+r.IntN(3))}
}
