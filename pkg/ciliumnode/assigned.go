package ciliumnode

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Allocation is a CIDR that multi-pool mode has assigned to a node.
type Allocation struct {
	// Pool is the CiliumPodIPPool it belongs to, also while it is parked.
	Pool string
	CIDR netip.Prefix
}

// readAllocated reads spec.ipam.pools.allocated.
func (v *View) readAllocated(cn *ciliumv2.CiliumNode) {
	for i, entry := range cn.Spec.IPAM.Pools.Allocated {
		v.entries = append(v.entries, poolCIDRs{entry, badTexts(v.BadFields, fmt.Sprintf("spec.ipam.pools.allocated[%d].cidrs[", i))})
		pool, _ := unparked(entry.Pool)
		for _, cidr := range prefixes(entry.CIDRs) {
			v.Allocated = append(v.Allocated, Allocation{Pool: pool, CIDR: cidr})
		}
	}
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

// CIDRsIn returns the CIDRs that an agent in a mode finds in the CiliumNode: in crd mode the
// operator lists the blocks that it has published. Other modes than crd and multi-pool have none.
func (v *View) CIDRsIn(m Mode) []netip.Prefix {
	if v == nil {
		return nil
	}
	switch m {
	case CRD:
		if v.BlockAssignment != nil {
			return v.BlockAssignment.LeftCIDRs
		}
		return v.PodCIDRs
	case MultiPool:
		var out []netip.Prefix
		for _, a := range v.Allocated {
			out = append(out, a.CIDR)
		}
		return out
	default:
		return nil
	}
}

// Given returns the CIDRs assigned to the node by any IPAM, also in a field that agents of this mode
// do not read.
func (v *View) Given() []netip.Prefix {
	if v.BlockAssignment == nil {
		return v.AssignedCIDRs()
	}
	return slices.Concat(v.BlockAssignment.LeftCIDRs, v.AssignedCIDRs())
}

// Unreported reports whether no agent has reported in this mode, so that another IPAM may serve the
// node's pods: by addresses in use in crd mode, by requests in multi-pool mode. In kubernetes mode
// agents report nothing.
func (v *View) Unreported() bool {
	if w := v.BlockAssignment; w != nil {
		return !w.SingleBlock && !w.Reported() && !w.LeftReport
	}
	return len(v.Used) == 0
}

// Unadopted returns the CIDRs assigned to the node that none of blocks contains, while another IPAM
// serves its pods: the agent has not reported in this mode, and the pool has no address of these
// CIDRs. In multi-pool mode they are podCIDRs: cluster-pool and kubernetes mode write no others.
func (v *View) Unadopted(blocks []netip.Prefix) []netip.Prefix {
	if !v.Unreported() {
		return nil
	}
	given := v.AssignedCIDRs()
	if v.BlockAssignment != nil {
		given = v.BlockAssignment.LeftCIDRs
	}
	out := ipalloc.Uncovered(given, blocks)
	ofGiven := func(addr netip.Addr) bool {
		return slices.ContainsFunc(given, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	if len(out) > 0 && (slices.ContainsFunc(slices.Collect(maps.Keys(v.Pool)), ofGiven) || slices.ContainsFunc(v.NonCanonical, ofGiven)) {
		return nil
	}
	return out
}
