package multipool

import (
	"net/netip"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// SeesAll calls Sees for each pool that a CiliumNode lists. The others stay as they were
// (multiPoolManager.ciliumNodeUpdated).
func (p *Pools) SeesAll(cn *ciliumv2.CiliumNode) {
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		var cidrs []netip.Prefix
		for _, c := range entry.CIDRs {
			cidrs = append(cidrs, c.Prefix)
		}
		p.Sees(entry.Pool, cidrs)
	}
}

// Spec is the agent's form of Update's result (multiPoolManager.updateLocalNode).
func Spec(shares []Share) ipamtypes.IPAMPoolSpec {
	var spec ipamtypes.IPAMPoolSpec
	for _, s := range shares {
		if len(s.CIDRs) > 0 {
			entry := ipamtypes.IPAMPoolAllocation{Pool: s.Pool}
			for _, c := range s.CIDRs {
				entry.CIDRs = append(entry.CIDRs, iputil.PrefixFrom(c))
			}
			spec.Allocated = append(spec.Allocated, entry)
		}
		if s.Requested != [2]int{} {
			needed := ipamtypes.IPAMPoolDemand{IPv4Addrs: s.Requested[ipalloc.IPv4], IPv6Addrs: s.Requested[ipalloc.IPv6]}
			spec.Requested = append(spec.Requested, ipamtypes.IPAMPoolRequest{Pool: s.Pool, Needed: needed})
		}
	}
	return spec
}
