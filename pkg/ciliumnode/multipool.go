package ciliumnode

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// defaultPool is the pool for pods that request no other, and for the agent's own
// addresses (pkg/defaults/defaults.go, IPAMDefaultIPPool, v1.20.1).
const defaultPool = "default"

// BlockAssignment is the report of an agent that is assigned whole blocks.
type BlockAssignment struct {
	// Requested is the number of addresses it requests, by family: the ones in use, the ones that
	// pods wait for, and its reserve. 0: not reported.
	Requested [2]int
	// Taken are the other CIDRs that the CiliumNode names: of other Cilium pools than the default
	// one, and leftovers of crd mode. No other node may have them.
	Taken []netip.Prefix
	// LeftCIDRs are spec.ipam.podCIDRs, and LeftAddresses the number of keys in
	// spec.ipam.pool, of a CiliumNode that assigns blocks in another field.
	LeftCIDRs     []netip.Prefix
	LeftAddresses int
	// LeftReport says that the report of an agent in crd mode is still there. An agent
	// in this mode removes it at startup, since v1.20; an older one leaves it.
	LeftReport bool
	// SingleBlock: the agent is assigned one CIDR of each family before it starts, and keeps
	// it as long as its Node exists.
	SingleBlock bool
	// Annotated are the CIDRs in annotations of its Node, where SingleBlock is set, whether
	// they take effect or not.
	Annotated []netip.Prefix
	// HasAgent says that its agent has created a CiliumNode, and ActiveCIDRs are the CIDRs
	// that the agent reports there as its own, where SingleBlock is set. Of a Node, ViewReader
	// alone knows them.
	HasAgent    bool
	ActiveCIDRs []netip.Prefix

	// NodeAgent: this project's node agent assigns the addresses, and reports each in use.
	NodeAgent bool
	// PodsOnly: this is a Cilium pool other than the default one. The agent requests
	// addresses of it only once pods want them.
	PodsOnly bool
	// HasEntry: spec.ipam.pools.allocated has an entry of the Cilium pool, with or without CIDRs.
	HasEntry bool

	// first and last: pods may get the edge addresses of each CIDR too.
	first, last bool
	requests    []ipamtypes.IPAMPoolRequest
	// byDefault is Requested of the default pool.
	byDefault [2]int
}

// Reported reports whether the agent has reported its requests. It always requests from
// the default pool: its own addresses come from there.
func (w *BlockAssignment) Reported() bool { return w.byDefault != [2]int{} }

// Uses reports whether the agent uses a family, as far as it has reported.
func (w *BlockAssignment) Uses(f ipalloc.Family) bool { return !w.Reported() || w.byDefault[f] > 0 }

// viewOfPools reads a CiliumNode of multi-pool mode. The agent's side is
// pkg/ipam/multipool_manager.go and pkg/ipam/pool.go of Cilium v1.20.1: it uses all CIDRs of its
// pools in spec.ipam.pools.allocated, removes CIDRs without an address in use once the rest covers
// its requests, and restores a CIDR that was removed while in use. Other agents route to all of them
// (pkg/k8s/node.go, ParseCiliumNode), so podCIDRs stays empty.
// report is that of an agent in crd mode, and obsolete.
func viewOfPools(cn *ciliumv2.CiliumNode, report map[netip.Addr]string) *View {
	requests := cn.Spec.IPAM.Pools.Requested
	requested := requestedOf(requests, defaultPool)
	v := newView(cn)
	first, last := edgesOf(v.entries, defaultPool)
	w := &BlockAssignment{
		HasEntry:  indexOf(v.entries, defaultPool) >= 0,
		Requested: requested, byDefault: requested, requests: requests, first: first, last: last,
		Taken:     append(leftovers(cn, report), cidrsBeside(v.entries, defaultPool)...),
		LeftCIDRs: prefixes(cn.Spec.IPAM.PodCIDRs), LeftAddresses: len(cn.Spec.IPAM.Pool), LeftReport: len(report) > 0,
	}
	v.PodCIDRs = cidrsOf(v.entries, defaultPool)
	v.Allocated = allocationsIn(v.entries)
	v.Own = ownAddresses(cn)
	v.Used = ownNames(cn, v.Own)
	v.familyDisabled = [2]bool{ipalloc.IPv4: !w.Uses(ipalloc.IPv4), ipalloc.IPv6: !w.Uses(ipalloc.IPv6)}
	v.BlockAssignment = w
	v.original = originalOf(cn, cn.Spec.IPAM.Pool)
	return v
}

// viewOfPodCIDRs reads a CiliumNode of cluster-pool mode: the agent allocates from podCIDRs, one of
// each family for as long as its CiliumNode exists (pkg/ipam/allocator/podcidr/podcidr.go, v1.20.1).
func viewOfPodCIDRs(cn *ciliumv2.CiliumNode) *View {
	v := newView(cn)
	v.PodCIDRs = prefixes(cn.Spec.IPAM.PodCIDRs)
	v.Own = ownAddresses(cn)
	v.Used = ownNames(cn, v.Own)
	v.familyDisabled = familiesUnnamed(cn)
	v.BlockAssignment = &BlockAssignment{SingleBlock: true, HasAgent: hasWritten(cn, v.Own, readPool(cn.Spec.IPAM.Pool), readUsed(cn)), ActiveCIDRs: v.PodCIDRs}
	v.original = originalOf(cn, cn.Spec.IPAM.Pool)
	return v
}

// cidrsOf returns the CIDRs listed for a Cilium pool, including parked ones, each once.
func cidrsOf(entries []poolCIDRs, pool string) []netip.Prefix {
	var cidrs []netip.Prefix
	for _, entry := range entries {
		if name, _ := unparked(entry.Pool); name != pool {
			continue
		}
		for _, cidr := range prefixes(entry.CIDRs) {
			if !slices.Contains(cidrs, cidr) {
				cidrs = append(cidrs, cidr)
			}
		}
	}
	return cidrs
}

// cidrsBeside returns the CIDRs listed for other Cilium pools.
func cidrsBeside(entries []poolCIDRs, pool string) []netip.Prefix {
	var cidrs []netip.Prefix
	for _, entry := range entries {
		if name, _ := unparked(entry.Pool); name != pool {
			cidrs = append(cidrs, prefixes(entry.CIDRs)...)
		}
	}
	return cidrs
}

// edgesOf reports whether pods may get the first and the last address of each CIDR of a Cilium pool.
func edgesOf(entries []poolCIDRs, pool string) (first, last bool) {
	for _, entry := range entries {
		if name, parked := unparked(entry.Pool); name == pool && !parked {
			first = entry.AllowFirstIP
			last = entry.AllowLastIP
		}
	}
	return first, last
}

// indexOf returns the index of a Cilium pool's entry, with or without CIDRs; below 0: it has none.
func indexOf(entries []poolCIDRs, pool string) int {
	return slices.IndexFunc(entries, func(e poolCIDRs) bool { return e.Pool == pool })
}

// requestedOf returns the number of addresses of a Cilium pool, by family, in requests.
func requestedOf(requests []ipamtypes.IPAMPoolRequest, pool string) [2]int {
	var requested [2]int
	for _, request := range requests {
		if request.Pool == pool {
			requested[ipalloc.IPv4] = max(0, request.Needed.IPv4Addrs)
			requested[ipalloc.IPv6] = max(0, request.Needed.IPv6Addrs)
		}
	}
	return requested
}

// Of returns the part of a CiliumNode about one Cilium pool, "" for the default one, as if
// there were no other. In modes without pools it returns all of it.
func (v *View) Of(pool string) *View {
	if v == nil || v.BlockAssignment == nil || v.BlockAssignment.SingleBlock || pool == "" {
		return v
	}
	out := *v
	w := *v.BlockAssignment
	w.PodsOnly = true
	w.HasEntry = indexOf(v.entries, pool) >= 0
	w.Requested = requestedOf(w.requests, pool)
	w.first, w.last = edgesOf(v.entries, pool)
	out.PodCIDRs = cidrsOf(v.entries, pool)
	out.BlockAssignment = &w
	out.Own = nil
	if !w.NodeAgent {
		out.Used = nil // those come from the default pool
	}
	return &out
}

// CiliumPools returns the Cilium pools, "" being the default one, that the CiliumNode lists
// CIDRs for, or that its agent requests addresses of; some more than once.
func (v *View) CiliumPools() []string {
	if v == nil || v.BlockAssignment == nil {
		return nil
	}
	var out []string
	add := func(pool string) {
		if pool == defaultPool {
			pool = ""
		}
		out = append(out, pool)
	}
	for _, entry := range v.entries {
		pool, _ := unparked(entry.Pool)
		add(pool)
	}
	for _, request := range v.BlockAssignment.requests {
		add(request.Pool)
	}
	return out
}

// Leftover reports whether an agent that still runs in crd mode may have a block: the
// fields such an agent reads name it, and its report is still there. The requests in
// the CiliumNode may then be older, from an agent in this mode.
func (v *View) Leftover(cidr netip.Prefix) bool {
	return v.BlockAssignment != nil && v.BlockAssignment.LeftReport && slices.Contains(v.BlockAssignment.LeftCIDRs, cidr)
}

// leftovers returns the CIDRs in the fields of crd mode.
func leftovers(cn *ciliumv2.CiliumNode, report map[netip.Addr]string) []netip.Prefix {
	a := readPool(cn.Spec.IPAM.Pool)
	out := prefixes(cn.Spec.IPAM.PodCIDRs)
	for _, addrs := range []iter.Seq[netip.Addr]{maps.Keys(a.Pool), slices.Values(a.NonCanonical), maps.Keys(report)} {
		for addr := range addrs {
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return out
}

// ownNames returns the agent's own addresses as crd mode reports them: no other mode has a report.
func ownNames(cn *ciliumv2.CiliumNode, own []netip.Addr) map[netip.Addr]string {
	names := make(map[netip.Addr]string, len(own))
	for _, addr := range own {
		names[addr] = ownName(cn, addr)
	}
	return names
}

// ownName returns the owner that crd mode reports for one of the agent's own addresses.
func ownName(cn *ciliumv2.CiliumNode, addr netip.Addr) string {
	matches := func(s string) bool {
		a, ok := ipalloc.ParseAddr(s)
		return ok && a == addr
	}
	if matches(cn.Spec.HealthAddressing.IPv4) || matches(cn.Spec.HealthAddressing.IPv6) {
		return "health"
	}
	if matches(cn.Spec.IngressAddressing.IPV4) || matches(cn.Spec.IngressAddressing.IPV6) {
		return "ingress"
	}
	return routerOwner
}

// allocate returns the patch that writes spec.ipam.pools.allocated.
func (v *View) allocate(entries []poolCIDRs) *patch {
	p := v.newPatch()
	p.Spec.IPAM.Pools = map[string][]poolCIDRs{"allocated": entries}
	return &p
}

// patchPools lists the blocks to assign, and parks blocks or lists them again under
// their pool. It never removes a listed CIDR: the agent may have assigned an address of it to a pod
// a moment ago, and there is no handshake to ask.
func (c Change) patchPools(v *View) *patch {
	listed := v.ListedInAnyPool()
	parked := v.Parked()
	added := map[string][]netip.Prefix{}
	for _, pool := range c.Forget {
		name := cmp.Or(pool, defaultPool)
		if indexOf(v.entries, name) < 0 {
			added[name] = nil
		}
	}
	for _, cidr := range sorted(c.Blocks) {
		pool := cmp.Or(c.CiliumPools[cidr], defaultPool)
		if slices.Contains(c.Park, cidr) {
			pool += parkedSuffix // the node agent closes it
		}
		if !slices.Contains(listed, cidr) && slices.Contains(c.Assign, cidr) {
			added[pool] = append(added[pool], cidr)
		}
	}
	moves := slices.ContainsFunc(parked, func(p netip.Prefix) bool { return slices.Contains(c.Unpark, p) }) ||
		slices.ContainsFunc(c.Park, func(p netip.Prefix) bool { return slices.Contains(listed, p) && !slices.Contains(parked, p) })
	if len(added) == 0 && !moves {
		return nil
	}
	entries := park(v.entries, c.Park, c.Unpark)
	for _, pool := range slices.Sorted(maps.Keys(added)) {
		entries = withCIDRs(entries, pool, added[pool])
	}
	return v.allocate(entries)
}

// withCIDRs adds CIDRs to a pool that it does not list in any form. Entries and CIDRs are in the
// agent's own order, sorted, or it would rewrite them; existing ones keep their place.
func withCIDRs(allocated []poolCIDRs, pool string, added []netip.Prefix) []poolCIDRs {
	out := slices.Clone(allocated)
	index := indexOf(out, pool)
	if index < 0 {
		index = slices.IndexFunc(out, func(e poolCIDRs) bool { return e.Pool > pool })
		if index < 0 {
			index = len(out)
		}
		out = slices.Insert(out, index, poolCIDRs{IPAMPoolAllocation: ipamtypes.IPAMPoolAllocation{Pool: pool}})
	}
	cidrs := slices.Clone(out[index].CIDRs)
	for _, cidr := range added {
		if slices.ContainsFunc(cidrs, func(p iputil.Prefix) bool { return ipalloc.Canonical(p.Prefix) == cidr }) {
			continue
		}
		i := slices.IndexFunc(cidrs, func(p iputil.Prefix) bool { return p.Compare(cidr) > 0 })
		if i < 0 {
			i = len(cidrs)
		}
		cidrs = slices.Insert(cidrs, i, iputil.PrefixFrom(cidr))
	}
	out[index].CIDRs = cidrs
	return out
}

// unlistBlocks removes blocks from all lists. The agent must repeat its requests for the new object,
// which shows that it has seen it. An entry is removed with its last CIDR: while an entry lacks a
// CIDR that is in use, an agent allocates no address of that CIDR until it restarts
// (pkg/ipam/pool.go, updatePool, v1.20.1).
func unlistBlocks(cn *ciliumv2.CiliumNode, blocks []netip.Prefix) {
	pools := &cn.Spec.IPAM.Pools
	pools.Requested = nil
	for i := range pools.Allocated {
		pools.Allocated[i].CIDRs = slices.DeleteFunc(pools.Allocated[i].CIDRs, func(p iputil.Prefix) bool {
			return slices.ContainsFunc(blocks, ipalloc.Canonical(p.Prefix).Overlaps)
		})
	}
	pools.Allocated = slices.DeleteFunc(pools.Allocated, func(e ipamtypes.IPAMPoolAllocation) bool { return len(e.CIDRs) == 0 })
}

// Count returns the number of addresses that the agent allocates from a CIDR: all but the first and
// the last, unless its entry allows them or the CIDR has no more than two.
func (w *BlockAssignment) Count(cidr netip.Prefix) int {
	hostBits := ipalloc.HostBits(cidr)
	n := ipalloc.CountWhole(cidr)
	if hostBits > 1 && !w.first {
		n--
	}
	if hostBits > 1 && !w.last {
		n--
	}
	return n
}
