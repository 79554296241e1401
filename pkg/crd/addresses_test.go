package crd_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func TestUsable(t *testing.T) {
	spec := v1alpha1.PodIPPoolSpec{
		IPv4:     ipv4(29, "10.0.0.0/24", "255.255.255.0/24"),
		IPv6:     ipv6(126, "fd00::/120"),
		Reserved: reserve("10.0.0.0/31", "10.0.0.4/32", "255.255.255.252/30", "fd00::1/128"),
	}
	spec.IPv6.AllowLastIP = new(true)
	p := pool(t, spec)
	tests := map[string]struct {
		block string
		want  []string
	}{
		"first, last and reserved":       {"10.0.0.0/29", []string{"10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6"}},
		"plain":                          {"10.0.0.8/30", []string{"10.0.0.9", "10.0.0.10"}},
		"end of the address space":       {"255.255.255.248/29", []string{"255.255.255.249", "255.255.255.250", "255.255.255.251"}},
		"all reserved":                   {"255.255.255.252/30", nil},
		"last allowed":                   {"fd00::/126", []string{"fd00::2", "fd00::3"}},
		"two addresses have no edges":    {"10.0.0.8/31", []string{"10.0.0.8", "10.0.0.9"}},
		"one address has no edges":       {"10.0.0.8/32", []string{"10.0.0.8"}},
		"outside the pool":               {"192.168.0.0/30", []string{"192.168.0.1", "192.168.0.2"}},
		"too wide for any CiliumNode":    {"10.0.0.0/8", nil},
		"too wide to count in an int":    {"fd00::/48", nil},
		"holds more than one block does": {"10.0.0.0/28", []string{"10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8", "10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var want []netip.Addr
			for _, a := range tt.want {
				want = append(want, netip.MustParseAddr(a))
			}
			block := netip.MustParsePrefix(tt.block)
			checkEqual(t, "addresses", want, p.Usable(block))
			if got := p.UsableCount(block); got != len(want) {
				t.Errorf("UsableCount is %d, want %d", got, len(want))
			}
		})
	}
	if got := p.UsableCount(netip.Prefix{}); got != 0 {
		t.Errorf("the zero prefix has %d usable addresses", got)
	}
}

// Agents that are assigned whole blocks use larger ones, and count 65536 addresses of an IPv6 block.
// Nothing lists these.
func TestLargeBlocks(t *testing.T) {
	d := defaults()
	d.WholeBlocks = true
	p, err := crd.PoolFrom(object("p", v1alpha1.PodIPPoolSpec{
		IPv4: ipv4(16, "10.0.0.0/14"), IPv6: ipv6(48, "fd00::/46"), ReservedBlockPolicy: "PublishRemainder",
		Reserved: reserve("10.1.0.0/32", "10.2.0.9/32", "fd00:0:1::/128", "fd00:0:2::/64"),
	}), d)
	if err != nil {
		t.Fatal(err)
	}
	for cidr, want := range map[string]int{
		"10.0.0.0/16": 1<<16 - 2, "10.1.0.0/16": 1<<16 - 2, "10.0.0.0/15": 0, "10.0.0.0/31": 2, "10.0.0.7/32": 1,
		"fd00::/48": 1<<16 - 2, "fd00:0:1::/48": 1<<16 - 2, "fd00:0:2::/48": 0, "fd00::/47": 0, "fd00::/113": 1<<15 - 2, "fd00::7/128": 1,
	} {
		if got := p.UsableCount(netip.MustParsePrefix(cidr)); got != want {
			t.Errorf("%s has %d addresses, want %d", cidr, got, want)
		}
	}
	for f, skipped := range [2]string{"10.2.0.0/16", "fd00:0:2::/48"} {
		f := ipalloc.Family(f)
		cut, _ := p.FullCut(f)
		checkEqual(t, "skipped", prefixes(skipped), p.Skipped(f))
		if addresses := p.TotalAddresses(cut); addresses != 3*(1<<16-2) || p.AddressesPerBlock(f) != 1<<16-2 {
			t.Errorf("%s: %d addresses, %d per block", f, addresses, p.AddressesPerBlock(f))
		}
	}
	for size, want := range map[int32]bool{15: false, 16: true, 32: true, 33: false} {
		if _, err := crd.PoolFrom(object("p", v1alpha1.PodIPPoolSpec{IPv4: ipv4(size, "10.0.0.0/12")}), d); (err == nil) != want {
			t.Errorf("blocks of /%d: %v", size, err)
		}
	}
}

// A block that overlaps a reserved range is not assigned, because it would be routed as a
// whole. If the pool publishes the remainder, only a block without any remainder is skipped.
func TestSkipped(t *testing.T) {
	reserved := reserve(
		"10.1.0.0/16",                // many whole blocks
		"10.0.0.0/31",                // leaves .2
		"10.0.0.5/32", "10.0.0.6/32", // with first and last, all of the block
		"10.0.0.8/31", "10.0.0.10/31", // two halves
		"10.0.0.12/32", "10.0.0.15/32", // the edges only
	)
	tests := map[string]struct {
		policy v1alpha1.ReservedBlockPolicy
		whole  bool
		want   []netip.Prefix
	}{
		"default":                                {want: prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30", "10.0.0.12/30", "10.1.0.0/16")},
		"Skip":                                   {policy: "Skip", want: prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30", "10.0.0.12/30", "10.1.0.0/16")},
		"Skip, whole blocks":                     {policy: "Skip", whole: true, want: prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30", "10.0.0.12/30", "10.1.0.0/16")},
		"PublishRemainder":                       {policy: "PublishRemainder", want: prefixes("10.0.0.4/30", "10.0.0.8/30", "10.1.0.0/16")},
		"the same, and agents have whole blocks": {policy: "PublishRemainder", whole: true, want: prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30", "10.1.0.0/16")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := defaults()
			d.WholeBlocks = tt.whole
			p, err := crd.PoolFrom(object("p", v1alpha1.PodIPPoolSpec{IPv4: ipv4(30, "10.0.0.0/8"), Reserved: reserved, ReservedBlockPolicy: tt.policy}), d)
			if err != nil {
				t.Fatal(err)
			}
			checkEqual(t, "addresses", tt.want, p.Skipped(ipalloc.IPv4))
			if got := p.Skipped(ipalloc.IPv6); got != nil {
				t.Errorf("IPv6: %v", got)
			}
		})
	}
}

func TestTotalAddresses(t *testing.T) {
	allowed := ipv4(27, "10.0.0.0/8")
	allowed.AllowFirstIP, allowed.AllowLastIP = new(true), new(true)
	tests := map[string]struct {
		spec   v1alpha1.PodIPPoolSpec
		v4, v6 int64
	}{
		"a /8 in /27":       {spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/8")}, v4: 1 << 19 * 30},
		"edges allowed":     {spec: v1alpha1.PodIPPoolSpec{IPv4: allowed}, v4: 1 << 24},
		"reserved blocks":   {spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/16"), Reserved: reserve("10.0.0.0/24")}, v4: (2048 - 8) * 30},
		"reserved edge":     {spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/24"), Reserved: reserve("10.0.0.0/31", "10.0.0.31/32")}, v4: 7 * 30},
		"the rest of it":    {spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/24"), Reserved: reserve("10.0.0.0/31", "10.0.0.31/32"), ReservedBlockPolicy: "PublishRemainder"}, v4: 8*30 - 1},
		"all reserved":      {spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/24"), Reserved: reserve("10.0.0.0/24")}},
		"more than 63 bits": {spec: v1alpha1.PodIPPoolSpec{IPv6: ipv6(122, "fd00::/48")}, v6: math.MaxInt64},
		"just too many": {
			spec: v1alpha1.PodIPPoolSpec{IPv6: &v1alpha1.IPv6Ranges{
				CIDRs: cidrs("fd00::/65"), BlockSize: 122, EdgeIPs: v1alpha1.EdgeIPs{AllowFirstIP: new(true), AllowLastIP: new(true)},
			}},
			v6: math.MaxInt64,
		},
		"a range that drains": {spec: v1alpha1.PodIPPoolSpec{IPv4: &v1alpha1.IPv4Ranges{BlockSize: 27, CIDRs: []v1alpha1.PoolCIDR{
			{CIDR: "10.0.0.0/24"}, {CIDR: "10.0.1.0/24", AllocationPolicy: v1alpha1.AllocationDrain},
		}}, Reserved: reserve("10.0.0.0/27", "10.0.1.0/27")}, v4: 7 * 30},
		"back in range by reservations": {
			spec: v1alpha1.PodIPPoolSpec{IPv6: ipv6(126, "fd00::/48"), Reserved: reserve("fd00::/49", "fd00:0:0:8000::/50", "fd00:0:0:c000::/50")},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := pool(t, tt.spec)
			for f, want := range []int64{ipalloc.IPv4: tt.v4, ipalloc.IPv6: tt.v6} {
				cut, _ := p.Cut(ipalloc.Family(f))
				if got := p.TotalAddresses(cut); got != want {
					t.Errorf("%s: %d, want %d", ipalloc.Family(f), got, want)
				}
			}
		})
	}
}

// TestAddressesAgainstOracle compares all counts and lists of random small pools with lists
// built address by address.
func TestAddressesAgainstOracle(t *testing.T) {
	for seed := range uint64(400) {
		spec := smallSpec(rand.New(rand.NewPCG(seed, 1)))
		p, err := crd.PoolFrom(object("p", spec), defaults())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, f := range ipalloc.Families() {
			if err := checkFamily(p, spec, f); err != nil {
				t.Errorf("seed %d, %s, %+v: %v", seed, f, spec, err)
			}
		}
	}
}

func checkFamily(p *crd.Pool, spec v1alpha1.PodIPPoolSpec, f ipalloc.Family) error {
	ranges, ok := p.Ranges(f)
	if !ok {
		return nil
	}
	total := int64(0)
	for _, r := range ranges.CIDRs {
		for block := netip.PrefixFrom(r.CIDR.Addr(), ranges.Bits); r.CIDR.Contains(block.Addr()); {
			want := naiveUsable(block, ranges, reserved(&spec))
			if got := p.Usable(block); !slices.Equal(got, want) {
				return fmt.Errorf("block %s: usable are %v, want %v", block, got, want)
			}
			if got := p.UsableCount(block); got != len(want) {
				return fmt.Errorf("block %s: count is %d, want %d", block, got, len(want))
			}
			skipped := slices.ContainsFunc(p.Skipped(f), func(s netip.Prefix) bool { return s.Overlaps(block) })
			if reserved := naiveReserved(block, &spec); skipped != (len(want) == 0 && reserved || spec.ReservedBlockPolicy == "Skip" && reserved) {
				return fmt.Errorf("block %s with %d usable: skipped is %v", block, len(want), skipped)
			}
			if p.Skips(block) != skipped {
				return fmt.Errorf("block %s is skipped: %v, and listed: %v", block, p.Skips(block), skipped)
			}
			if !skipped {
				total += int64(len(want))
			}
			block = netip.PrefixFrom(netipx.PrefixLastIP(block).Next(), ranges.Bits)
		}
	}
	whole, _ := p.FullCut(f)
	if got := p.TotalAddresses(whole); got != total {
		return fmt.Errorf("total is %d, want %d", got, total)
	}
	return nil
}

// naiveReserved reports whether anything of block is reserved.
func naiveReserved(block netip.Prefix, spec *v1alpha1.PodIPPoolSpec) bool {
	return slices.ContainsFunc(reserved(spec), block.Overlaps)
}

func reserved(spec *v1alpha1.PodIPPoolSpec) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range spec.Reserved {
		out = append(out, netip.MustParsePrefix(r.CIDR))
	}
	return out
}

func naiveUsable(block netip.Prefix, ranges *crd.Ranges, reserved []netip.Prefix) []netip.Addr {
	var usable []netip.Addr
	for a := block.Addr(); block.Contains(a); a = a.Next() {
		edge := a == block.Addr() && !ranges.AllowFirst || !block.Contains(a.Next()) && !ranges.AllowLast
		if !edge && !slices.ContainsFunc(reserved, func(r netip.Prefix) bool { return r.Contains(a) }) {
			usable = append(usable, a)
		}
	}
	return usable
}

// smallSpec returns a pool of some dozen blocks with reservations all over them.
func smallSpec(r *rand.Rand) v1alpha1.PodIPPoolSpec {
	edges := func() v1alpha1.EdgeIPs {
		return v1alpha1.EdgeIPs{AllowFirstIP: new(r.IntN(2) == 0), AllowLastIP: new(r.IntN(2) == 0)}
	}
	spec := v1alpha1.PodIPPoolSpec{
		IPv4:                &v1alpha1.IPv4Ranges{BlockSize: 27 + r.Int32N(4), CIDRs: cidrs("10.0.0.0/25", "255.255.255.128/25"), EdgeIPs: edges()},
		IPv6:                &v1alpha1.IPv6Ranges{BlockSize: 123 + r.Int32N(4), CIDRs: cidrs("fd00::/121", "fd00::80/121"), EdgeIPs: edges()},
		ReservedBlockPolicy: []v1alpha1.ReservedBlockPolicy{v1alpha1.SkipReservedBlocks, v1alpha1.PublishRemainder}[r.IntN(2)],
	}
	starts := []netip.Addr{netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("255.255.255.128"), netip.MustParseAddr("fd00::"), netip.MustParseAddr("fd00::80")}
	for range r.IntN(20) {
		b := starts[r.IntN(len(starts))].AsSlice()
		b[len(b)-1] += byte(r.IntN(128))
		addr, _ := netip.AddrFromSlice(b)
		reserved, err := addr.Prefix(addr.BitLen() - r.IntN(6))
		if err == nil {
			spec.Reserved = append(spec.Reserved, reserve(reserved.String())...)
		}
	}
	return spec
}
