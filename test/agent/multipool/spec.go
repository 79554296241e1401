package multipool

import (
	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

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
