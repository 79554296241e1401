package integration

import (
	"net/netip"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ciliumNodeWith returns a CiliumNode with a pool and podCIDRs that the operator did
// not write.
func ciliumNodeWith(name string, pool, podCIDRs []string) *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
	for _, addr := range pool {
		cn.Spec.IPAM.Pool[addr] = ipamtypes.AllocationIP{}
	}
	for _, cidr := range podCIDRs {
		cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(netip.MustParsePrefix(cidr)))
	}
	return cn
}
