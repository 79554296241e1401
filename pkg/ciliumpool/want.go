package ciliumpool

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Wanted is what a CiliumPodIPPool should say, by family; nil: nothing of that.
// Pools are the PodIPPools that serve it, sound or not, listed are the CIDRs that
// CiliumNodes list for it, and is is the object that there is, or nil.
//
// An agent that announces a pool by BGP crashes over a CIDR of a family that the
// object has no ranges of (pkg/bgp/manager/reconciler/pod_ip_pool.go,
// getPodIPPoolPolicyStatements, v1.20.1). So a family stays as long as a CIDR of
// it is listed.
func Wanted(pools []*crd.Pool, listed []netip.Prefix, is *View) [2]*Ranges {
	var want [2]*Ranges
	for _, f := range ipalloc.Families() {
		served, frozen := servedBy(pools, f)
		inUse := slices.DeleteFunc(slices.Clone(listed), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) != f })
		switch {
		case served != nil:
			want[f] = served
		case !frozen && len(inUse) == 0:
		case is != nil && is.Ranges[f] != nil:
			want[f] = is.Ranges[f] // nobody says better
		case len(inUse) > 0:
			want[f] = &Ranges{CIDRs: widest(inUse), MaskSize: inUse[0].Bits()}
		}
	}
	return want
}

// servedBy is what PodIPPools have of a family: all their CIDRs, and the block
// size of the oldest. Frozen tells of one whose CIDRs cannot be read.
func servedBy(pools []*crd.Pool, f ipalloc.Family) (served *Ranges, frozen bool) {
	pools = slices.SortedFunc(slices.Values(pools), func(a, b *crd.Pool) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	var cidrs []netip.Prefix
	size := 0
	for _, p := range pools {
		ranges, has := p.Ranges(f)
		if !has {
			continue
		}
		if p.Frozen() {
			frozen = true
			continue
		}
		size = cmp.Or(size, ranges.Bits)
		for _, r := range ranges.CIDRs {
			cidrs = append(cidrs, r.CIDR)
		}
	}
	if len(cidrs) == 0 {
		return nil, frozen
	}
	return &Ranges{CIDRs: widest(cidrs), MaskSize: size}, frozen
}

// widest are CIDRs, sorted, without those that lie in another.
func widest(cidrs []netip.Prefix) []string {
	sorted := slices.SortedFunc(slices.Values(cidrs), netip.Prefix.Compare)
	var out []string
	var last netip.Prefix
	for _, c := range sorted {
		if last.IsValid() && last.Overlaps(c) {
			continue
		}
		out, last = append(out, c.String()), c
	}
	return out
}

type patch struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec map[string]*rangesPatch `json:"spec"`
}

type rangesPatch struct {
	CIDRs    []string `json:"cidrs"`
	MaskSize int      `json:"maskSize,omitempty"`
}

// Patch is the JSON merge patch that lets a CiliumPodIPPool say what it should, on
// exactly the version seen, or nil where it does. It names CIDRs alone, and a
// maskSize where there is none yet, as that cannot be changed: labels, annotations
// and selectors stay as people have them.
func (v *View) Patch(want [2]*Ranges) ([]byte, error) {
	p := patch{Spec: map[string]*rangesPatch{}}
	for f, field := range [2]string{ipalloc.IPv4: "ipv4", ipalloc.IPv6: "ipv6"} {
		is, should := v.Ranges[f], want[f]
		switch {
		case should == nil && is != nil:
			p.Spec[field] = nil
		case should != nil && is == nil:
			p.Spec[field] = &rangesPatch{should.CIDRs, should.MaskSize}
		case should != nil && !slices.Equal(is.CIDRs, should.CIDRs):
			p.Spec[field] = &rangesPatch{CIDRs: should.CIDRs}
		}
	}
	if len(p.Spec) == 0 {
		return nil, nil
	}
	p.Metadata.ResourceVersion = v.ResourceVersion
	return json.Marshal(p)
}
