package crd_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// contender is a pool in brief: the day it was created, and its CIDRs.
type contender struct {
	name     string
	day      int
	cidrs    []string
	policy   v1alpha1.AllocationPolicy
	deleting bool
}

func contest(t testing.TB, list []contender) []*crd.Pool {
	t.Helper()
	var pools []*crd.Pool
	for _, c := range list {
		obj := object(c.name, v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, c.cidrs...)})
		obj.CreationTimestamp = birth(c.day)
		if c.deleting {
			obj.DeletionTimestamp = ptr(birth(30))
		}
		for i := range obj.Spec.IPv4.CIDRs {
			obj.Spec.IPv4.CIDRs[i].AllocationPolicy = c.policy
		}
		pools = append(pools, poolFrom(t, obj))
	}
	return pools
}

// closed lists closed CIDRs, as "a 10.0.0.0/16: b 10.0.1.0/24".
func closed(pools []*crd.Pool) []string {
	var list []string
	for _, p := range pools {
		for _, f := range ipalloc.Families() {
			ranges, ok := p.Ranges(f)
			if !ok {
				continue
			}
			for _, r := range ranges.CIDRs {
				if r.YieldsTo != "" {
					list = append(list, fmt.Sprintf("%s %s: %s %s", p.Name, r.CIDR, r.YieldsTo, r.Overlap))
				}
			}
		}
	}
	return list
}

func TestResolveOverlaps(t *testing.T) {
	tests := map[string]struct {
		pools []contender
		want  []string
	}{
		"none": {
			pools: []contender{{name: "a", day: 1, cidrs: []string{"10.0.0.0/16"}}, {name: "b", day: 2, cidrs: []string{"10.1.0.0/16"}}},
		},
		"the older wins, other CIDRs stay open": {
			pools: []contender{
				{name: "a", day: 2, cidrs: []string{"10.0.0.0/16", "10.9.0.0/16"}},
				{name: "b", day: 1, cidrs: []string{"10.0.16.0/20"}},
			},
			want: []string{"a 10.0.0.0/16: b 10.0.16.0/20"},
		},
		"same age, by name": {
			pools: []contender{{name: "b", day: 1, cidrs: []string{"10.0.0.0/16"}}, {name: "a", day: 1, cidrs: []string{"10.0.0.0/16"}}},
			want:  []string{"b 10.0.0.0/16: a 10.0.0.0/16"},
		},
		"what is closed closes nothing": {
			pools: []contender{
				{name: "a", day: 1, cidrs: []string{"10.0.0.0/24"}},
				{name: "b", day: 2, cidrs: []string{"10.0.0.0/16"}},
				{name: "c", day: 3, cidrs: []string{"10.0.9.0/24"}},
			},
			want: []string{"b 10.0.0.0/16: a 10.0.0.0/24"},
		},
		"one closes many": {
			pools: []contender{
				{name: "a", day: 1, cidrs: []string{"10.0.0.0/16"}},
				{name: "b", day: 2, cidrs: []string{"10.0.0.0/24", "10.0.1.0/24"}},
				{name: "c", day: 3, cidrs: []string{"10.0.0.0/8"}},
			},
			want: []string{"b 10.0.0.0/24: a 10.0.0.0/16", "b 10.0.1.0/24: a 10.0.0.0/16", "c 10.0.0.0/8: a 10.0.0.0/16"},
		},
		"many close one": {
			pools: []contender{
				{name: "c", day: 3, cidrs: []string{"10.0.0.0/8"}},
				{name: "b", day: 2, cidrs: []string{"10.0.0.0/24"}},
				{name: "a", day: 1, cidrs: []string{"10.0.1.0/24"}},
			},
			want: []string{"c 10.0.0.0/8: a 10.0.1.0/24"},
		},
		"ranges that drain, are cordoned or deleted make room": {
			pools: []contender{
				{name: "a", day: 1, cidrs: []string{"10.0.0.0/16"}, policy: v1alpha1.AllocationDrain},
				{name: "b", day: 1, cidrs: []string{"10.0.0.0/16"}, policy: v1alpha1.AllocationCordon},
				{name: "c", day: 1, cidrs: []string{"10.0.0.0/16"}, deleting: true},
				{name: "d", day: 2, cidrs: []string{"10.0.0.0/16"}},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pools := contest(t, tt.pools)
			for range 10 {
				got := crd.ResolveOverlaps(pools)
				if diff := cmp.Diff(tt.want, closed(got)); diff != "" {
					t.Fatal(diff)
				}
				if diff := cmp.Diff(tt.want, closed(crd.ResolveOverlaps(got))); diff != "" {
					t.Fatalf("done again: %s", diff)
				}
				rand.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
			}
			if got := closed(pools); got != nil {
				t.Errorf("the input was changed: %v", got)
			}
			resolved := crd.ResolveOverlaps(pools)
			for _, p := range resolved {
				if got := closed(crd.ResolveOverlaps([]*crd.Pool{p})); got != nil {
					t.Errorf("the other pools are gone, yet %v", got)
				}
			}
			if diff := cmp.Diff(tt.want, closed(resolved)); diff != "" {
				t.Errorf("the input was changed: %s", diff)
			}
		})
	}
}

// TestResolveOverlapsRandom checks for any pools that open CIDRs share no address, a CIDR
// closes only for an open one, and neither the order of pools nor resolving twice changes anything.
func TestResolveOverlapsRandom(t *testing.T) {
	policies := []v1alpha1.AllocationPolicy{"", "", "", "", v1alpha1.AllocationCordon, v1alpha1.AllocationDrain}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		var list []contender
		for i := range 2 + r.IntN(6) {
			c := contender{name: fmt.Sprint("p", i), day: 1 + r.IntN(3), policy: policies[r.IntN(len(policies))], deleting: r.IntN(8) == 0}
			// Two CIDRs that do not overlap, as CIDRs of one pool must not.
			for _, top := range []byte{10, 11} {
				addr := netip.AddrFrom4([4]byte{top, byte(r.IntN(256)), 0, 0})
				c.cidrs = append(c.cidrs, netip.PrefixFrom(addr, 8+r.IntN(7)).Masked().String())
			}
			list = append(list, c)
		}
		pools := contest(t, list)
		resolved := crd.ResolveOverlaps(pools)
		if err := checkResolved(resolved); err != nil {
			t.Fatalf("seed %d, %+v: %v", seed, list, err)
		}
		r.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
		for how, again := range map[string][]*crd.Pool{"again": resolved, "in another order": pools} {
			if diff := cmp.Diff(closed(resolved), closed(crd.ResolveOverlaps(again))); diff != "" {
				t.Fatalf("seed %d, %+v, %s: %s", seed, list, how, diff)
			}
		}
	}
}

func checkResolved(pools []*crd.Pool) error {
	open := map[netip.Prefix]string{}
	for _, p := range pools {
		if p.Deleting {
			continue // no block is claimed from it
		}
		cut, _ := p.Cut(ipalloc.IPv4)
		for _, c := range cut.Ranges {
			for other, owner := range open {
				if other.Overlaps(c) {
					return fmt.Errorf("%s of %s and %s of %s are both open", c, p.Name, other, owner)
				}
			}
			open[c] = p.Name
		}
	}
	for _, p := range pools {
		ranges, _ := p.Ranges(ipalloc.IPv4)
		for _, r := range ranges.CIDRs {
			if r.YieldsTo != "" && (open[r.Overlap] != r.YieldsTo || !r.Overlap.Overlaps(r.CIDR)) {
				return fmt.Errorf("%s of %s is closed by %s of %s, which is not open there", r.CIDR, p.Name, r.Overlap, r.YieldsTo)
			}
		}
	}
	return nil
}
