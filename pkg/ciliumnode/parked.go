package ciliumnode

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	iputil "github.com/cilium/cilium/pkg/ip"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// parkedSuffix ends the names of the reserved pools. A CIDR is parked while it is listed under the
// reserved pool of its Cilium pool. No pod requests an address of a reserved pool: other nodes
// route to the CIDR as before (pkg/k8s/node.go, ParseCiliumNode), its agent keeps the addresses
// that are in use, and allocates none of it to a new pod from then on, even after the CIDR is back
// (pkg/ipam/pool.go, updatePool, v1.20.1). With its next update the agent itself lists a CIDR in
// use under its pool again, and drops an unused one.
const parkedSuffix = ".draining.cilium-pool.io"

// unparked returns the Cilium pool of an entry of spec.ipam.pools.allocated, and whether its CIDRs
// are parked.
func unparked(pool string) (ciliumPool string, parked bool) {
	return strings.CutSuffix(pool, parkedSuffix)
}

// Parked returns the CIDRs that are parked, of all Cilium pools, without host bits. They
// count as listed for their own Cilium pool.
func (v *View) Parked() []netip.Prefix {
	if v == nil || v.BlockAssignment == nil {
		return nil
	}
	var out []netip.Prefix
	for _, entry := range v.entries {
		if _, parked := unparked(entry.Pool); parked {
			out = append(out, prefixes(entry.CIDRs)...)
		}
	}
	return out
}

// park moves CIDRs between the list of their Cilium pool and that of its reserved pool. It never
// adds a CIDR that is on neither. The entry of the Cilium pool stays if it becomes empty, as an
// agent ignores a pool without an entry; that of the reserved pool goes.
func park(allocated []poolCIDRs, parks, unparks []netip.Prefix) []poolCIDRs {
	out := slices.Clone(allocated)
	moved := map[string][]netip.Prefix{}
	for i, entry := range allocated {
		pool, parked := unparked(entry.Pool)
		move := parks
		target := entry.Pool + parkedSuffix
		if parked {
			move = unparks
			target = pool
		}
		out[i].CIDRs = slices.DeleteFunc(slices.Clone(entry.CIDRs), func(p iputil.Prefix) bool {
			cidr := ipalloc.Canonical(p.Prefix)
			moves := slices.Contains(move, cidr)
			if moves {
				moved[target] = append(moved[target], cidr)
			}
			return moves
		})
	}
	for _, pool := range slices.Sorted(maps.Keys(moved)) {
		out = withCIDRs(out, pool, moved[pool])
	}
	return slices.DeleteFunc(out, func(e poolCIDRs) bool {
		_, parked := unparked(e.Pool)
		return parked && e.empty()
	})
}
