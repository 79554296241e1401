package ciliumnode

import (
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// routerOwner is an agent's name for the owner of its router's address
// (daemon/infraendpoints/infra_ip_allocation.go, v1.20.1).
const routerOwner = "router"

// familiesUnreported returns the families that an agent in crd mode does not run because its
// configuration disables them, and its own addresses that are stale. An agent has an address of its own
// in each family that it runs: it names all of them at once (pkg/nodediscovery/nodediscovery.go,
// mutateNodeResource, v1.20.1), and reports them in use. So a family is disabled if the agent names and reports addresses of the other one and
// reports none of this one. Without a report none is known to be.
//
// It goes on naming the router's and the ingress address of a family that was disabled
// later, which it reads from its CiliumNode (pkg/node/sync/local_node_sync.go) and from its
// ipcache (pkg/ipcache/restore/local_identity_restorer.go), but not the health endpoint's.
// These are stale if its report names the router of the other family.
func familiesUnreported(cn *ciliumv2.CiliumNode, own []netip.Addr, used map[netip.Addr]string) (disabled [2]bool, stale []netip.Addr) {
	var named, reported, router [2]bool
	for addr, owner := range used {
		f := ipalloc.FamilyOf(addr)
		reported[f] = true
		router[f] = router[f] || owner == routerOwner
	}
	for _, addr := range own {
		named[ipalloc.FamilyOf(addr)] = true
	}
	for _, f := range ipalloc.Families() {
		second := 1 - f
		if !named[second] || !reported[second] || reported[f] {
			continue
		}
		old := staleOf(f, cn, own)
		if named[f] && (!router[second] || len(old) == 0) {
			continue
		}
		disabled[f] = true
		stale = append(stale, old...)
	}
	return disabled, stale
}

// familiesUnnamed returns which family an agent in kubernetes mode does not run, as it names
// addresses of its own in the other one alone. An agent that has run the family before may go on
// naming its addresses: see familiesUnreported. Agents report no addresses in this mode.
func familiesUnnamed(cn *ciliumv2.CiliumNode) [2]bool {
	var named [2]bool
	for _, addr := range ownAddresses(cn) {
		named[ipalloc.FamilyOf(addr)] = true
	}
	return [2]bool{ipalloc.IPv4: named[ipalloc.IPv6] && !named[ipalloc.IPv4], ipalloc.IPv6: named[ipalloc.IPv4] && !named[ipalloc.IPv6]}
}

// staleOf returns the agent's own addresses of a family if it may have all of them from an
// earlier run. A link-local one is of its configuration (local-router-ipv6), and never
// reported; others may be, too: see WithConfigured.
func staleOf(f ipalloc.Family, cn *ciliumv2.CiliumNode, own []netip.Addr) []netip.Addr {
	health := [2]string{ipalloc.IPv4: cn.Spec.HealthAddressing.IPv4, ipalloc.IPv6: cn.Spec.HealthAddressing.IPv6}
	addrs := slices.DeleteFunc(slices.Clone(own), func(addr netip.Addr) bool { return ipalloc.FamilyOf(addr) != f })
	if health[f] != "" || slices.ContainsFunc(addrs, netip.Addr.IsLinkLocalUnicast) {
		return nil
	}
	return addrs
}

// WithConfigured returns the view of an agent that runs a family if the address that Stale
// names of it may be configured (local-router-ipv6) and not left from an earlier run. A
// configured address lies in no block, and the agent reports none of the family until a pod
// has one. With a health endpoint or an ingress address it would: it has them in each family
// that it runs. inPool reports whether a PodIPPool contains an address.
func (v *View) WithConfigured(inPool func(netip.Addr) bool) *View {
	if v == nil || v.Addresses == nil || len(v.Addresses.Stale) == 0 {
		return v
	}
	for _, owner := range v.Used {
		if owner != routerOwner && expand.NamesAgent(owner) {
			return v
		}
	}
	for _, addr := range v.Addresses.Stale {
		if inPool(addr) || v.Publishes(addr) || slices.ContainsFunc(v.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return v
		}
	}
	runs := *v
	runs.Own = slices.Concat(v.Own, v.Addresses.Stale)
	slices.SortFunc(runs.Own, netip.Addr.Compare)
	runs.familyDisabled = [2]bool{}
	addresses := *v.Addresses
	addresses.Stale = nil
	runs.Addresses = &addresses
	return &runs
}

// FamilyDisabled reports whether the agent has reported that it does not run a family.
func (v *View) FamilyDisabled(f ipalloc.Family) bool { return v != nil && v.familyDisabled[f] }

// FamiliesDisabled returns FamilyDisabled of each family.
func (v *View) FamiliesDisabled() [2]bool { return v.familyDisabled }
