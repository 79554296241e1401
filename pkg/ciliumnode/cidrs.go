package ciliumnode

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// A View names CIDRs by who may use them:
//
//	                     Cilium pools   fields
//	PodCIDRs             default        of the View's mode
//	ListsForDefaultPool  default        of the View's mode
//	ListedInAnyPool      all            of the View's mode
//	PodRanges            all            of the View's mode; in crd mode the addresses of the pool
//	AssignedCIDRs        all            podCIDRs and allocations
//	CIDRsAgentReads      all            of a given mode
//	CIDRsOfAnyIPAM       all            of every mode

// Allocation is a CIDR that multi-pool mode has assigned to a node.
type Allocation struct {
	// CiliumPool is the CiliumPodIPPool it belongs to, also while it is parked.
	CiliumPool string
	CIDR       netip.Prefix
}

// allocationsIn returns the CIDRs of entries of spec.ipam.pools.allocated.
func allocationsIn(entries []poolCIDRs) []Allocation {
	var out []Allocation
	for _, entry := range entries {
		pool, _ := unparked(entry.Pool)
		for _, cidr := range prefixes(entry.CIDRs) {
			out = append(out, Allocation{CiliumPool: pool, CIDR: cidr})
		}
	}
	return out
}

// AssignedCIDRs returns the CIDRs assigned to the node, by any IPAM, each once: podCIDRs, then the
// allocations of multi-pool mode. Other nodes route to both alike (pkg/k8s/node.go,
// ParseCiliumNode, v1.20.1).
func (v *View) AssignedCIDRs() []netip.Prefix {
	out := make([]netip.Prefix, 0, len(v.PodCIDRs)+len(v.Allocated))
	out = append(out, v.PodCIDRs...)
	for _, a := range v.Allocated {
		if !slices.Contains(out, a.CIDR) {
			out = append(out, a.CIDR)
		}
	}
	return out
}

// CIDRsAgentReads returns the CIDRs that an agent in a mode finds in the CiliumNode: in crd mode the
// operator lists the blocks that it has published. Other modes than crd and multi-pool have none.
func (v *View) CIDRsAgentReads(m Mode) []netip.Prefix {
	if v == nil {
		return nil
	}
	switch m {
	case CRD:
		return v.crdCIDRs()
	case MultiPool, DelegatedPlugin:
		var out []netip.Prefix
		for _, a := range v.Allocated {
			out = append(out, a.CIDR)
		}
		return out
	default:
		return nil
	}
}

// crdCIDRs returns spec.ipam.podCIDRs, unless it is the field that assigns whole blocks.
func (v *View) crdCIDRs() []netip.Prefix {
	if v.Addresses != nil {
		return v.PodCIDRs
	}
	return v.BlockAssignment.LeftCIDRs
}

// CIDRsOfAnyIPAM returns the CIDRs assigned to the node by any IPAM, also in a field that agents of this mode
// do not read.
func (v *View) CIDRsOfAnyIPAM() []netip.Prefix {
	if v.Addresses != nil {
		return v.AssignedCIDRs()
	}
	return slices.Concat(v.BlockAssignment.LeftCIDRs, v.AssignedCIDRs())
}

// Unreported reports whether no agent has reported in this mode, so that another IPAM may serve the
// node's pods: by addresses in use in crd mode, by requests in multi-pool mode. In kubernetes mode
// agents report nothing.
func (v *View) Unreported() bool {
	if v.Addresses != nil {
		return len(v.Used) == 0
	}
	w := v.BlockAssignment
	return !w.SingleBlock && !w.Reported() && !w.LeftReport
}

// Unadopted returns the CIDRs assigned to the node that none of blocks contains, while another IPAM
// serves its pods: the agent has not reported in this mode, and the pool has no address of these
// CIDRs. In multi-pool mode they are podCIDRs: cluster-pool and kubernetes mode write no others.
func (v *View) Unadopted(blocks []netip.Prefix) []netip.Prefix {
	if !v.Unreported() {
		return nil
	}
	if v.Addresses == nil {
		return ipalloc.Uncovered(v.BlockAssignment.LeftCIDRs, blocks)
	}
	given := v.AssignedCIDRs()
	out := ipalloc.Uncovered(given, blocks)
	inGiven := func(addr netip.Addr) bool {
		return slices.ContainsFunc(given, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	if len(out) > 0 && (slices.ContainsFunc(slices.Collect(maps.Keys(v.Addresses.Pool)), inGiven) || slices.ContainsFunc(v.Addresses.NonCanonical, inGiven)) {
		return nil
	}
	return out
}

// ListsForDefaultPool reports whether PodCIDRs, the list of the default Cilium pool, names cidr.
func (v *View) ListsForDefaultPool(cidr netip.Prefix) bool { return slices.Contains(v.PodCIDRs, cidr) }

// ListsInAnyPool reports whether the CiliumNode has a block, in any of Cilium's pools.
func (v *View) ListsInAnyPool(cidr netip.Prefix) bool {
	return v != nil && slices.Contains(v.ListedInAnyPool(), cidr)
}

// PodRanges returns the CIDRs and addresses that pods may get from the agent, of any Cilium pool.
func (v *View) PodRanges() []netip.Prefix {
	if v.Addresses == nil {
		return v.ListedInAnyPool()
	}
	out := make([]netip.Prefix, 0, len(v.Addresses.Pool))
	for addr := range v.Addresses.Pool {
		out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return out
}

// ListedInAnyPool returns the CIDRs that the agent may allocate from, for any Cilium pool, without host
// bits; in crd mode, podCIDRs.
func (v *View) ListedInAnyPool() []netip.Prefix {
	if v.Addresses != nil {
		return v.PodCIDRs
	}
	return v.AssignedCIDRs()
}

// ListedFor returns the Cilium pool that a CIDR is listed for; "": the default one, or it is
// not listed.
func (v *View) ListedFor(cidr netip.Prefix) string {
	if v == nil || v.BlockAssignment == nil || v.ListsForDefaultPool(cidr) {
		return ""
	}
	for _, a := range v.Allocated {
		if a.CIDR == cidr && a.CiliumPool != defaultPool {
			return a.CiliumPool
		}
	}
	return ""
}
