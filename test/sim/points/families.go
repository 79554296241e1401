package main

import (
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// growBoth gives n1 a pod with an address of each family.
func growBoth() step {
	return step{"a pod has addresses", pod("p1"), hasAddress("p1")}
}

func familyOff() step {
	return step{"the agent runs IPv4 alone, and its pod is gone", func(d *driver) {
		d.try(world.AgentFamilies, "n1", "ipv4")
		d.try(world.PodDelete, "n1", "p1")
	}, func(v view) bool { return up(v) && !v.HasAddress("n1", "p1") && v.reports("n1") == "ipv4" }}
}

// familyDrained makes users delete the IPv6 blocks of n1.
func familyDrained() step {
	return step{"its IPv6 blocks are gone", func(d *driver) {
		for _, b := range d.w.Blocks() {
			if b.Spec.NodeName == "n1" && netip.MustParsePrefix(b.Spec.CIDR).Addr().Is6() {
				d.try(world.BlockDelete, "people", b.Name)
			}
		}
	}, func(v view) bool { return !v.deleting("n1") }}
}

// deleting reports whether a block of a node is being deleted.
func (v view) deleting(node string) bool {
	return slices.ContainsFunc(v.Blocks(), func(b *v1alpha1.PodIPBlock) bool { return b.Spec.NodeName == node && b.DeletionTimestamp != nil })
}

func familyOn() step {
	return step{"the agent runs both families", func(d *driver) { d.try(world.AgentFamilies, "n1", "all") },
		func(v view) bool { return up(v) && v.reports("n1") == "both" }}
}

// reports returns the families of the addresses that the agent of a node reports.
func (v view) reports(node string) string {
	ipv4, ipv6 := false, false
	for key := range v.CiliumNode(node).Status.IPAM.Used {
		ipv6 = ipv6 || netip.MustParseAddr(key).Is6()
		ipv4 = ipv4 || netip.MustParseAddr(key).Is4()
	}
	switch {
	case ipv4 && ipv6:
		return "both"
	case ipv4:
		return "ipv4"
	}
	return ""
}
