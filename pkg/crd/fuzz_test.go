package crd_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// FuzzPoolFrom compares a pool with naive lists of addresses.
func FuzzPoolFrom(f *testing.F) {
	f.Add("10.20.0.0/16,10.21.0.0/24", int32(27), "fd00:10::/48", int32(122), "10.20.0.0/28,fd00:10::/64", "zone", int32(80), int32(50), uint8(0))
	f.Add("10.0.0.0/24", int32(30), "", int32(0), "10.0.0.1/32,10.0.0.2/32,10.0.0.4/30,10.0.0.9/32", "", int32(1), int32(0), uint8(1))
	f.Add("255.255.255.0/24", int32(28), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:0/112", int32(124), "255.255.255.240/28,255.255.255.239/32", "a/b", int32(100), int32(99), uint8(6))
	f.Add("0.0.0.0/0", int32(20), "::/0", int32(116), "::/1", "!", int32(-1), int32(100), uint8(255))
	f.Fuzz(func(t *testing.T, v4 string, v4Size int32, v6 string, v6Size int32, reserved, label string, expand, reclaim int32, flags uint8) {
		edges := v1alpha1.EdgeIPs{AllowFirstIP: new(flags&1 != 0), AllowLastIP: new(flags&2 != 0)}
		spec := v1alpha1.PodIPPoolSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: label}},
			Expand:       v1alpha1.Expand{ThresholdPercent: &expand},
			Reclaim:      v1alpha1.Reclaim{ThresholdPercent: &reclaim},
		}
		if v4 != "" {
			spec.IPv4 = &v1alpha1.IPv4Ranges{CIDRs: cidrs(strings.Split(v4, ",")...), BlockSize: v4Size, EdgeIPs: edges}
		}
		if v6 != "" {
			spec.IPv6 = &v1alpha1.IPv6Ranges{CIDRs: cidrs(strings.Split(v6, ",")...), BlockSize: v6Size, EdgeIPs: edges}
		}
		if reserved != "" {
			spec.Reserved = reserve(strings.Split(reserved, ",")...)
		}
		if flags&4 != 0 {
			spec.ReservedBlockPolicy = v1alpha1.PublishRemainder
		}
		p, err := crd.PoolFrom(object("p", spec), defaults())
		if err != nil {
			return
		}
		if err := p.Policy.Validate(); err != nil {
			t.Errorf("accepted policy %+v: %v", p.Policy, err)
		}
		for _, f := range ipalloc.Families() {
			checkAccepted(t, p, f, spec.ReservedBlockPolicy == v1alpha1.PublishRemainder)
		}
	})
}

// checkAccepted checks the blocks at the edges of all ranges and reservations. remainder: the
// pool publishes the rest of a block.
func checkAccepted(t *testing.T, p *crd.Pool, f ipalloc.Family, remainder bool) {
	ranges, ok := p.Ranges(f)
	if !ok {
		return
	}
	if whole, _ := p.FullCut(f); p.TotalAddresses(whole) < 0 {
		t.Errorf("total of %s is negative", f)
	}
	var corners []netip.Prefix
	for _, r := range ranges.CIDRs {
		corners = append(corners, r.CIDR)
	}
	for _, r := range p.Reserved.Prefixes() {
		if ipalloc.FamilyOf(r.Addr()) == f {
			corners = append(corners, r)
		}
	}
	for _, c := range corners {
		for _, addr := range []netip.Addr{c.Addr(), netipx.PrefixLastIP(c)} {
			block, err := addr.Prefix(ranges.Bits)
			if err != nil {
				t.Fatal(err)
			}
			checkBlock(t, p, block, ranges, remainder)
		}
	}
}

func checkBlock(t *testing.T, p *crd.Pool, block netip.Prefix, ranges *crd.Ranges, remainder bool) {
	t.Helper()
	if !p.OnGrid(block) {
		t.Errorf("%s is not on the grid of %+v", block, ranges)
	}
	usable := p.Usable(block)
	if want := naiveUsable(block, ranges, p.Reserved.Prefixes()); !slices.Equal(usable, want) {
		t.Errorf("usable of %s are %v, want %v", block, usable, want)
	}
	if p.UsableCount(block) != len(usable) {
		t.Errorf("%s: count is %d, listed are %d", block, p.UsableCount(block), len(usable))
	}
	skipped := len(usable) == 0
	if !remainder {
		skipped = slices.ContainsFunc(p.Reserved.Prefixes(), block.Overlaps)
	}
	if p.Skips(block) != skipped {
		t.Errorf("%s has %d usable addresses, skipped is %v", block, len(usable), p.Skips(block))
	}
}
