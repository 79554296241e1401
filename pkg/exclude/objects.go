package exclude

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// OfNode returns the addresses of a Node, sorted.
func OfNode(n *corev1.Node) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			addr = addr.Unmap().WithZone("")
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return sorted(out)
}

// OfServices returns the CIDRs from which a ServiceCIDR assigns addresses to Services, sorted.
func OfServices(s *networkingv1.ServiceCIDR) []netip.Prefix {
	var out []netip.Prefix
	for _, c := range s.Spec.CIDRs {
		if p, err := netip.ParsePrefix(c); err == nil {
			out = append(out, p.Masked())
		}
	}
	return sorted(out)
}

// Of returns single addresses as CIDRs, sorted.
func Of(addrs []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(addrs))
	for _, a := range addrs {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return sorted(out)
}

func sorted(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes)
}
