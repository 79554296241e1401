package ciliumnode

import (
	"maps"
	"net/netip"
	"slices"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Addresses is the part of a CiliumNode that assigns single addresses to its agent, in crd mode.
type Addresses struct {
	// Pool is spec.ipam.pool: address to the owner written there.
	Pool map[netip.Addr]string
	// NonCanonical are pool keys that are addresses in a non-canonical form. The agent would
	// allocate such an address a second time under its canonical key, so no address is published
	// beside them.
	NonCanonical []netip.Addr
	// Unreadable are pool keys that are not addresses.
	Unreadable []string
	// Stale are the agent's own addresses of a family that it once ran and no longer does. It
	// does not use them, and allocates new ones before it runs the family again. While it names
	// them, no other node may have them.
	Stale []netip.Addr

	// written is spec.ipam.podCIDRs as it is written, where that differs from PodCIDRs.
	written []netip.Prefix
	// neverRead: no agent has written the CiliumNode.
	neverRead bool
	// tracked: the API server tracks who writes which field, and no client needs that, as
	// clients that apply the object do.
	tracked bool
}

// NewView reads a CiliumNode of crd mode, which must not be changed afterwards.
func NewView(cn *ciliumv2.CiliumNode) *View {
	used := readUsed(cn)
	own := ownAddresses(cn)
	disabled, stale := familiesUnreported(cn, own, used)
	a := readPool(cn.Spec.IPAM.Pool)
	a.Stale = stale
	a.written = writtenIn(cn.Spec.IPAM.PodCIDRs)
	a.neverRead = !hasWritten(cn, own, a, used)
	a.tracked = len(cn.ManagedFields) > 0 && !slices.ContainsFunc(cn.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Operation == metav1.ManagedFieldsOperationApply
	})
	v := newView(cn)
	v.PodCIDRs = prefixes(cn.Spec.IPAM.PodCIDRs)
	v.Allocated = allocationsIn(v.entries)
	v.Used = used
	v.Own = slices.DeleteFunc(own, func(addr netip.Addr) bool { return slices.Contains(stale, addr) })
	v.familyDisabled = disabled
	v.Addresses = a
	v.original = originalOf(cn, a.unreadPart(cn.Spec.IPAM.Pool))
	return v
}

// readPool reads the keys of spec.ipam.pool.
func readPool(pool ipamtypes.AllocationMap) *Addresses {
	a := &Addresses{Pool: make(map[netip.Addr]string, len(pool))}
	for key, ip := range pool {
		addr, ok := ipalloc.ParseAddr(key)
		switch {
		case !ok:
			a.Unreadable = append(a.Unreadable, key)
		case addr.String() != key:
			a.NonCanonical = append(a.NonCanonical, addr)
		default:
			a.Pool[addr] = ip.Owner
		}
	}
	slices.Sort(a.Unreadable)
	slices.SortFunc(a.NonCanonical, netip.Addr.Compare)
	return a
}

// unreadPart returns a pool of which Pool is not all, and otherwise nil.
func (a *Addresses) unreadPart(pool ipamtypes.AllocationMap) ipamtypes.AllocationMap {
	hasResource := func(ip ipamtypes.AllocationIP) bool { return ip.Resource != "" }
	if len(a.Pool) == len(pool) && !slices.ContainsFunc(slices.Collect(maps.Values(pool)), hasResource) {
		return nil
	}
	return pool
}

// readUsed reads status.ipam.used, the report of an agent in crd mode.
func readUsed(cn *ciliumv2.CiliumNode) map[netip.Addr]string {
	used := make(map[netip.Addr]string, len(cn.Status.IPAM.Used))
	for key, ip := range cn.Status.IPAM.Used {
		addr, ok := ipalloc.ParseAddr(key)
		if _, known := used[addr]; ok && (!known || addr.String() == key) {
			used[addr] = ip.Owner
		}
	}
	return used
}

// hasWritten reports whether an agent in crd or cluster-pool mode has written the CiliumNode.
func hasWritten(cn *ciliumv2.CiliumNode, own []netip.Addr, a *Addresses, used map[netip.Addr]string) bool {
	return cn.Spec.BootID != "" || len(own)+len(used)+len(a.NonCanonical) > 0
}

// writtenIn returns valid prefixes as they are written, or nil if prefixes does.
func writtenIn(list []iputil.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if p.IsValid() {
			out = append(out, p.Prefix)
		}
	}
	if slices.Equal(out, prefixes(list)) {
		return nil
	}
	return out
}
