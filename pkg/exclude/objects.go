package exclude

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// maxOfNode bounds the number of addresses that a Node or CiliumNode has. It asks for the others:
// one kubelet must not take a pool from all nodes.
const maxOfNode = 16

// OfNode returns the addresses of a Node, and the further ones that it asks for, sorted. They are of
// any type: a cloud may list one as Hostname only.
func OfNode(n *corev1.Node) (assigned, requested []netip.Prefix) {
	var out []netip.Addr
	for _, a := range n.Status.Addresses {
		out = read(out, a.Address)
	}
	return OfHost(out)
}

// OfHost is OfNode for the addresses of a node, the important ones first.
func OfHost(addrs []netip.Addr) (assigned, requested []netip.Prefix) {
	n := min(len(addrs), maxOfNode)
	return Of(addrs[:n]), Of(addrs[n:])
}

// OfService returns the addresses of a Service outside the ServiceCIDRs, sorted. A controller has
// assigned the addresses of its load balancer. Its author asks for loadBalancerIP and externalIPs.
func OfService(s *corev1.Service) (assigned, requested []netip.Prefix) {
	var ingress []netip.Addr
	for _, i := range s.Status.LoadBalancer.Ingress {
		ingress = read(ingress, i.IP)
	}
	assigned = Of(ingress)
	requested = Of(read(read(nil, s.Spec.ExternalIPs...), s.Spec.LoadBalancerIP))
	return assigned, slices.DeleteFunc(requested, func(p netip.Prefix) bool { return contains(assigned, p) })
}

// OfEndpoints returns the addresses of the API server in an EndpointSlice of its Service, and the further
// ones that it asks for, sorted.
func OfEndpoints(s *discoveryv1.EndpointSlice) (assigned, requested []netip.Prefix) {
	var out []netip.Addr
	for i := range s.Endpoints {
		out = read(out, s.Endpoints[i].Addresses...)
	}
	return OfHost(out)
}

// OfServices returns the CIDRs that a ServiceCIDR assigns to Services, sorted.
func OfServices(s *networkingv1.ServiceCIDR) []netip.Prefix {
	var out []netip.Prefix
	for _, c := range s.Spec.CIDRs {
		if p, err := netip.ParsePrefix(c); err == nil {
			out = append(out, ipalloc.Canonical(p))
		}
	}
	return sorted(out)
}

// OfLoadBalancerPool returns the ranges that Cilium assigns to Services, sorted. A disabled pool
// counts too: it can be enabled at any time.
func OfLoadBalancerPool(p *ciliumv2.CiliumLoadBalancerIPPool) []netip.Prefix {
	var out []netip.Prefix
	for _, b := range p.Spec.Blocks {
		if cidr, err := netip.ParsePrefix(string(b.Cidr)); err == nil {
			out = append(out, ipalloc.Canonical(cidr))
		}
		first, _ := ipalloc.ParseAddr(b.Start)
		last, _ := ipalloc.ParseAddr(cmp.Or(b.Stop, b.Start))
		out = append(out, netipx.IPRangeFrom(first, last).Prefixes()...) // none of an invalid range
	}
	return sorted(out)
}

// OfMetalLBPool returns the ranges of an IPAddressPool's spec.addresses, CIDRs or first-last, sorted.
func OfMetalLBPool(addresses []string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range addresses {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			out = append(out, ipalloc.Canonical(cidr))
			continue
		}
		low, high, _ := strings.Cut(text, "-")
		first, _ := ipalloc.ParseAddr(strings.TrimSpace(low))
		last, _ := ipalloc.ParseAddr(strings.TrimSpace(high))
		out = append(out, netipx.IPRangeFrom(first, last).Prefixes()...) // none of an invalid range
	}
	return sorted(out)
}

// OfEgressPolicy returns the addresses that gateways give connections of pods, sorted.
func OfEgressPolicy(p *ciliumv2.CiliumEgressGatewayPolicy) []netip.Prefix {
	var out []netip.Addr
	if p.Spec.EgressGateway != nil {
		out = read(out, p.Spec.EgressGateway.EgressIP)
	}
	for i := range p.Spec.EgressGateways {
		out = read(out, p.Spec.EgressGateways[i].EgressIP)
	}
	return Of(out)
}

// Of returns single addresses as CIDRs, sorted.
func Of(addrs []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(addrs))
	for _, a := range addrs {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return sorted(out)
}

// read appends the addresses among texts.
func read(addrs []netip.Addr, texts ...string) []netip.Addr {
	for _, text := range texts {
		if addr, ok := ipalloc.ParseAddr(text); ok {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

func sorted(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes)
}
