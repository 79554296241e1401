package invariant

import (
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
)

// view is a CiliumNode as the rules see it, parsed here and not by the code under test.
type view struct {
	// pool holds each address, in any notation; keys that are not addresses are in unreadable.
	pool       map[netip.Addr]bool
	unreadable map[string]bool
	podCIDRs   []netip.Prefix
	used       map[netip.Addr]string
	own        map[netip.Addr]bool
	// stays are the addresses that the agent still names when it does not run the family: the
	// router's and the ingress', unless they are link-local and so come from its configuration.
	stays   map[netip.Addr]bool
	release map[netip.Addr]string
}

// familyNotRun reports whether the agent has shown that it does not run the family of an
// address: it names addresses of the other family, and its report names only that family.
// Addresses of this family that it names may be left from when it ran it, if the report names
// its router in the other.
func (v *view) familyNotRun(addr netip.Addr) bool {
	named, used, router, left := false, false, false, false
	for a := range v.own {
		switch {
		case a.Is4() != addr.Is4():
			named = true
		case !v.stays[a]:
			return false
		default:
			left = true
		}
	}
	for a, owner := range v.used {
		if a.Is4() == addr.Is4() {
			return false
		}
		used, router = true, router || owner == "router"
	}
	return named && used && (router || !left)
}

// newView parses the CiliumNode after a change; nil: there is none.
func newView(c Change) *view {
	cn, ok := c.New.(*ciliumv2.CiliumNode)
	if !ok {
		return nil
	}
	v := &view{
		pool: make(map[netip.Addr]bool, len(cn.Spec.IPAM.Pool)), unreadable: map[string]bool{},
		used: make(map[netip.Addr]string, len(cn.Status.IPAM.Used)),
		own:  map[netip.Addr]bool{}, stays: map[netip.Addr]bool{}, release: map[netip.Addr]string{},
	}
	for key := range cn.Spec.IPAM.Pool {
		if addr, ok := parse(key); ok {
			v.pool[addr] = true
		} else {
			v.unreadable[key] = true
		}
	}
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		v.podCIDRs = append(v.podCIDRs, p.Prefix)
	}
	for key, ip := range cn.Status.IPAM.Used {
		if addr, ok := parse(key); ok {
			v.used[addr] = ip.Owner
		}
	}
	for key, state := range cn.Status.IPAM.ReleaseIPs {
		if addr, ok := parse(key); ok {
			v.release[addr] = string(state)
		}
	}
	left := []string{cn.Spec.IngressAddressing.IPV4, cn.Spec.IngressAddressing.IPV6}
	for _, a := range cn.Spec.Addresses {
		if a.Type == addressing.NodeCiliumInternalIP {
			left = append(left, a.IP)
		}
	}
	for _, s := range left {
		if addr, ok := parse(s); ok {
			v.own[addr], v.stays[addr] = true, !addr.IsLinkLocalUnicast()
		}
	}
	for _, s := range []string{cn.Spec.HealthAddressing.IPv4, cn.Spec.HealthAddressing.IPv6} {
		if addr, ok := parse(s); ok {
			v.own[addr], v.stays[addr] = true, false
		}
	}
	return v
}

func parse(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	return addr.Unmap(), err == nil
}

// without returns the addresses of a that are not in b, sorted. A nil view has none.
func without(a, b *view) []netip.Addr {
	if a == nil {
		return nil
	}
	var out []netip.Addr
	for addr := range a.pool {
		if b == nil || !b.pool[addr] {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
