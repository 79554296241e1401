package adopt

import (
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Facts identify which IPAM assigned a node its addresses.
type Facts struct {
	// Mode is the key ipam of the ConfigMap cilium-config; "": unknown.
	Mode string
	// PodCIDRs and Allocated are the CiliumNode's, NodePodCIDRs the Node's.
	PodCIDRs, Allocated, NodePodCIDRs []netip.Prefix
	// Published are the addresses in spec.ipam.pool.
	Published []netip.Addr
	// Reported: the agent has reported the addresses it uses.
	Reported bool
	// Blocks are the blocks that the node holds.
	Blocks []crd.Block
}

// SourceOf returns the IPAM mode that a node moves from, until its move is finished,
// and the CIDRs assigned to it, each once.
func SourceOf(f Facts) (Source, []netip.Prefix) {
	source := f.source()
	given := union(f.PodCIDRs, f.Allocated)
	if source == Kubernetes && f.tellsNothing() {
		given = union(f.NodePodCIDRs)
	} else if source == MultiPool {
		given = slices.DeleteFunc(given, f.onlyPublished)
	}
	return source, given
}

// onlyPublished reports whether multi-pool mode no longer allocates cidr to the node, so that
// podCIDRs name it only because the operator published a block that leaves.
func (f *Facts) onlyPublished(cidr netip.Prefix) bool {
	isLeaving := func(b crd.Block) bool { return b.CIDR == cidr && (b.Deleting || b.Phase != ipalloc.InService) }
	return slices.ContainsFunc(f.Blocks, isLeaving) && !ipalloc.Covered(cidr, f.Allocated)
}

func (f *Facts) source() Source {
	blocks := crd.CIDRs(f.Blocks)
	i := slices.IndexFunc(f.Blocks, func(b crd.Block) bool { return b.AdoptedFrom != "" })
	switch {
	case i >= 0:
		return Source(f.Blocks[i].AdoptedFrom)
	case f.filledByHand(blocks):
		return CRD
	case f.Reported:
		return None
	case len(ipalloc.Uncovered(f.Allocated, blocks)) > 0:
		return MultiPool
	case len(ipalloc.Uncovered(f.PodCIDRs, blocks)) > 0:
		if f.Mode != string(ClusterPool) && !notAmong(f.PodCIDRs, f.NodePodCIDRs) {
			return Kubernetes
		}
		return ClusterPool
	case f.Mode == string(Kubernetes) && f.tellsNothing() && len(ipalloc.Uncovered(f.NodePodCIDRs, blocks)) > 0:
		return Kubernetes
	}
	return None
}

// filledByHand reports whether an agent may use addresses that the operator did not publish. The
// operator may have claimed a block beside them already. In multi-pool mode the pool of a node with
// blocks is a leftover unless the agent reports.
func (f *Facts) filledByHand(blocks []netip.Prefix) bool {
	inCRD := f.Reported || len(blocks) == 0 || len(f.Allocated) == 0
	return inCRD && slices.ContainsFunc(f.Published, func(a netip.Addr) bool { return !ipalloc.Covered(ipalloc.Single(a), blocks) })
}

// tellsNothing reports whether an agent in kubernetes mode has not written its CiliumNode yet.
func (f *Facts) tellsNothing() bool {
	return len(f.PodCIDRs)+len(f.Allocated)+len(f.Published) == 0
}

// notAmong reports whether one of list is not in excluded.
func notAmong(list, excluded []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(cidr netip.Prefix) bool { return !slices.Contains(excluded, cidr) })
}

func union(lists ...[]netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, list := range lists {
		for _, cidr := range list {
			if cidr = cidr.Masked(); !slices.Contains(out, cidr) {
				out = append(out, cidr)
			}
		}
	}
	return out
}
