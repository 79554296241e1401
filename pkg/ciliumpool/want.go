package ciliumpool

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Nowhere is the one CIDR in the operator's objects, by family: a documentation address (RFC 5737,
// RFC 3849). Cilium requires one, and agents ignore it. The ranges of PodIPPools must not be there:
// a cilium-operator that allocates, which it should not, would assign them a second time. It cannot
// split a block off a single address (pkg/ipam/cidrset/cidr_set.go, NewCIDRSet, v1.20.1).
var Nowhere = [2]string{ipalloc.IPv4: "192.0.2.0/32", ipalloc.IPv6: "2001:db8::/128"}

// nowhere returns the CIDR of an object with a maskSize. If that makes a block of a single address, it is of
// the other family, as cilium-operator refuses such a pool (operator/pkg/ipam/allocator/clusterpool/cidralloc,
// NewCIDRSets, v1.20.1).
func nowhere(f ipalloc.Family, maskSize int) ciliumv2alpha1.PoolCIDR {
	if maskSize == f.Bits() {
		return ciliumv2alpha1.PoolCIDR(Nowhere[1-f])
	}
	return ciliumv2alpha1.PoolCIDR(Nowhere[f])
}

// Wanted is the maskSize that a CiliumPodIPPool should have, by family; 0: no ranges of
// that family. Pools are the PodIPPools that serve it, valid or not: the block size of
// the oldest counts.
// Listed are the CIDRs that CiliumNodes list for it or pins keep for its owner, and current is the
// object, or nil.
//
// An agent that announces a pool by BGP crashes on a CIDR of a family that the object
// has no ranges of (pkg/bgp/manager/reconciler/pod_ip_pool.go,
// getPodIPPoolPolicyStatements, v1.20.1). So a family stays as long as a CIDR of it is
// listed.
func Wanted(pools []*crd.Pool, listed []netip.Prefix, current *View) [2]int {
	var want [2]int
	for _, f := range ipalloc.Families() {
		served, frozen := servedBy(pools, f)
		inUse := slices.DeleteFunc(slices.Clone(listed), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) != f })
		switch {
		case served != 0:
			want[f] = served
		case (frozen || len(inUse) > 0) && current != nil && current.MaskSize[f] != 0:
			want[f] = current.MaskSize[f] // no PodIPPool says otherwise
		case len(inUse) > 0:
			want[f] = slices.MinFunc(inUse, netip.Prefix.Compare).Bits()
		}
	}
	return want
}

// servedBy returns the block size of the oldest PodIPPool that has a family; 0: none has.
// frozen means that its CIDRs cannot be read.
func servedBy(pools []*crd.Pool, f ipalloc.Family) (size int, frozen bool) {
	pools = slices.SortedFunc(slices.Values(pools), func(a, b *crd.Pool) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	for _, p := range pools {
		ranges, ok := p.Ranges(f)
		if !ok {
			continue
		}
		if p.Frozen() {
			frozen = true
		} else {
			size = cmp.Or(size, ranges.Bits)
		}
	}
	return size, frozen
}

// Patch returns a JSON merge patch that sets the wanted families of a CiliumPodIPPool, conditional
// on the version seen, or nil if it has them. Existing ranges of a family stay, because maskSize
// cannot be changed; so do labels, annotations and selectors, except that the object of an owner gets
// the marks, if there are any to follow.
func (v *View) Patch(want [2]int, marks *Marks) ([]byte, error) {
	meta := map[string]any{"resourceVersion": v.ResourceVersion}
	spec := map[string]any{}
	if marks != nil && crd.OwnerOfPool(v.Name) != "" && !v.Marks.Equal(*marks) {
		meta["labels"] = changes(v.Marks.Labels, marks.Labels)
		meta["annotations"] = changes(v.Marks.Annotations, marks.Annotations)
	}
	for f, field := range [2]string{ipalloc.IPv4: "ipv4", ipalloc.IPv6: "ipv6"} {
		hasRanges := v.MaskSize[f] != 0
		wantsRanges := want[f] != 0
		if hasRanges && !wantsRanges {
			spec[field] = nil
		} else if wantsRanges && !hasRanges {
			spec[field] = map[string]any{"cidrs": []any{nowhere(ipalloc.Family(f), want[f])}, "maskSize": want[f]}
		}
	}
	patch := map[string]any{"metadata": meta}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	if len(meta) == 1 && len(spec) == 0 {
		return nil, nil
	}
	return json.Marshal(patch)
}

// changes returns the entries of a merge patch that makes one map another.
func changes(current, wanted map[string]string) map[string]any {
	out := map[string]any{}
	for key := range current {
		out[key] = nil
	}
	for key, value := range wanted {
		out[key] = value
	}
	return out
}
