package crd_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func TestPoolFrom(t *testing.T) {
	obj := object("beijing", v1alpha1.PodIPPoolSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "beijing"}},
		Priority:     10,
		Paused:       new(true),
		IPv4: &v1alpha1.IPv4Ranges{
			CIDRs:     []v1alpha1.PoolCIDR{{CIDR: "100.66.224.0/19"}, {CIDR: "100.67.0.0/20", AllocationPolicy: v1alpha1.AllocationDrain}},
			BlockSize: 27,
			EdgeIPs:   v1alpha1.EdgeIPs{AllowFirstIP: new(true)},
		},
		IPv6:     ipv6(122, "fd00:10::/48"),
		Reserved: reserve("100.66.224.0/28", "100.66.224.16/28", "fd00:10::/64"),
		Expand:   v1alpha1.Expand{ThresholdPercent: ptr[int32](90), MaxBlocksPerNode: ptr[int32](3)},
		Reclaim:  v1alpha1.Reclaim{IdleFor: ptr[v1alpha1.Duration]("1h"), Policy: v1alpha1.ReclaimNever},
		Cooldown: ptr[v1alpha1.Duration]("1h"),
	})
	obj.UID, obj.Generation, obj.DeletionTimestamp = "u", 7, ptr(birth(2))
	got := poolFrom(t, obj)

	policy := expand.DefaultPolicy()
	policy.ExpandPercent, policy.MaxBlocks, policy.IdleFor, policy.ReclaimDisabled = 90, 3, time.Hour, true
	type plain struct {
		Name, UID, Selector string
		Generation          int64
		Created             time.Time
		Priority            int32
		Paused, Deleting    bool
		Policy              expand.Policy
		Cooldown, NodeGone  time.Duration
		Reserved            any
		IPv4, IPv6          crd.Ranges
	}
	v4, _ := got.Ranges(ipalloc.IPv4)
	v6, _ := got.Ranges(ipalloc.IPv6)
	want := plain{
		Name: "beijing", UID: "u", Selector: "zone=beijing",
		Generation: 7, Created: birth(1).Time, Priority: 10, Paused: true, Deleting: true,
		// A block must not cool down for less time if its node is gone.
		Policy: policy, Cooldown: time.Hour, NodeGone: time.Hour,
		Reserved: prefixes("100.66.224.0/27", "fd00:10::/64"),
		IPv4: crd.Ranges{Bits: 27, AllowFirst: true, CIDRs: []crd.Range{
			{CIDR: prefixes("100.66.224.0/19")[0]}, {CIDR: prefixes("100.67.0.0/20")[0], Policy: v1alpha1.AllocationDrain},
		}},
		IPv6: crd.Ranges{Bits: 122, CIDRs: []crd.Range{{CIDR: prefixes("fd00:10::/48")[0]}}},
	}
	if diff := cmp.Diff(want, plain{
		got.Name, string(got.UID), got.Selector.String(), got.Generation, got.Created, got.Priority, got.Paused, got.Deleting,
		got.Policy, got.Cooldown, got.NodeGoneCooldown, got.Reserved.Prefixes(), *v4, *v6,
	}, compareNetip()); diff != "" {
		t.Error(diff)
	}
}

// A pool can switch reclaim off, and on if the operator's flags have it off; a pool without the
// setting follows the flags.
func TestPoolFromReclaimPolicy(t *testing.T) {
	for _, test := range []struct {
		policy                 v1alpha1.ReclaimPolicy
		disabledByFlag, wanted bool
	}{
		{"", false, false}, {"", true, true},
		{v1alpha1.ReclaimNever, false, true}, {v1alpha1.ReclaimNever, true, true},
		{v1alpha1.ReclaimWhenIdle, false, false}, {v1alpha1.ReclaimWhenIdle, true, false},
	} {
		spec := v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/16"), Reclaim: v1alpha1.Reclaim{Policy: test.policy}}
		d := defaults()
		d.Policy.ReclaimDisabled = test.disabledByFlag
		p, err := crd.PoolFrom(object("p", spec), d)
		if err != nil || p.Policy.ReclaimDisabled != test.wanted {
			t.Errorf("%+v: disabled %t, %v", test, p != nil && p.Policy.ReclaimDisabled, err)
		}
	}
}

// A value that a newer operator knows acts as the most careful one here, and is reported.
func TestUnknownPolicies(t *testing.T) {
	blocks := prefixes("10.0.0.0/27", "10.1.0.0/27")
	for name, test := range map[string]struct {
		edit    func(*v1alpha1.PodIPPoolSpec)
		careful func(*crd.Pool) bool
		problem string
	}{
		"allocation": {
			func(s *v1alpha1.PodIPPoolSpec) { s.IPv4.CIDRs[0].AllocationPolicy = "Sell" },
			func(p *crd.Pool) bool {
				return !p.Assigns(blocks[0]) && !p.Drains(blocks[0]) && p.Assigns(blocks[1]) && !p.Frozen()
			},
			`spec.ipv4.cidrs[0].allocationPolicy: Invalid value: "Sell": this version of the operator does not know it, and acts as for Cordon: write Cordon or one of [Allocate Drain], or`,
		},
		"reserved blocks": {
			func(s *v1alpha1.PodIPPoolSpec) {
				s.Reserved, s.ReservedBlockPolicy = reserve("10.0.0.1/32"), "Sell"
			},
			func(p *crd.Pool) bool { return p.Skips(blocks[0]) },
			`spec.reservedBlockPolicy: Invalid value: "Sell": this version of the operator does not know it, and acts as for Skip`,
		},
		"reclaim": {
			func(s *v1alpha1.PodIPPoolSpec) { s.Reclaim.Policy = "Sell" },
			func(p *crd.Pool) bool { return p.Policy.ReclaimDisabled },
			`spec.reclaim.policy: Invalid value: "Sell": this version of the operator does not know it, and acts as for Never`,
		},
		"unselected nodes": {
			func(s *v1alpha1.PodIPPoolSpec) { s.UnselectedNodes.Policy = "Sell" },
			func(p *crd.Pool) bool { return !p.DrainUnselected },
			`spec.unselectedNodes.policy: Invalid value: "Sell": this version of the operator does not know it, and acts as for Retain`,
		},
		"maintenance": {
			func(s *v1alpha1.PodIPPoolSpec) { s.Maintenance.Policy = "Sell" },
			func(p *crd.Pool) bool {
				return p.Maintenance.Delay(noon()).Reason == expand.WaitNoWindow && p.PolicyProblem == nil
			},
			`spec.maintenance.policy: Invalid value: "Sell": this version of the operator does not know it, and opens no window`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/16", "10.1.0.0/16")}
			test.edit(&spec)
			p := pool(t, spec)
			if !test.careful(p) || p.Problem() == nil || !strings.HasPrefix(p.Problem().Error(), test.problem) {
				t.Errorf("careful: %t; problem: %v", test.careful(p), p.Problem())
			}
		})
	}
}

func TestPoolFromRefuses(t *testing.T) {
	good := func() v1alpha1.PodIPPoolSpec { return v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.20.0.0/16")} }
	changed := func(change func(*v1alpha1.PodIPPoolSpec)) v1alpha1.PodIPPoolSpec {
		s := good()
		change(&s)
		return s
	}
	tests := map[string]struct {
		name string // "p" if empty
		spec v1alpha1.PodIPPoolSpec
		want []string // one each problem
	}{
		"no addresses": {
			want: []string{"spec: Required value: set ipv4, ipv6 or both: a pool without addresses serves no node"},
		},
		"name too long for blocks": {
			name: strings.Repeat("p", 64), spec: good(),
			want: []string{"metadata.name: Too long: may not be more than 63 bytes"},
		},
		"no CIDRs": {
			spec: v1alpha1.PodIPPoolSpec{IPv6: ipv6(122)},
			want: []string{"spec.ipv6.cidrs: Required value: list at least one CIDR"},
		},
		"malformed": {
			spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.20.0.0", "10.300.0.0/16", "")},
			want: []string{
				`spec.ipv4.cidrs[0].cidr: Invalid value: "10.20.0.0": is not a CIDR: write it like 10.20.0.0/16 or fd00:10::/48`,
				`spec.ipv4.cidrs[1].cidr: Invalid value: "10.300.0.0/16": is not a CIDR: write it like 10.20.0.0/16 or fd00:10::/48`,
				`spec.ipv4.cidrs[2].cidr: Invalid value: "": is not a CIDR: write it like 10.20.0.0/16 or fd00:10::/48`,
			},
		},
		"host bits": {
			spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.20.1.0/16")},
			want: []string{`spec.ipv4.cidrs[0].cidr: Invalid value: "10.20.1.0/16": has host bits set: write 10.20.0.0/16`},
		},
		"wrong family": {
			spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "fd00::/64"), IPv6: ipv6(122, "10.0.0.0/8")},
			want: []string{
				`spec.ipv4.cidrs[0].cidr: Invalid value: "fd00::/64": is not ipv4: list it under spec.ipv6.cidrs`,
				`spec.ipv6.cidrs[0].cidr: Invalid value: "10.0.0.0/8": is not ipv6: list it under spec.ipv4.cidrs`,
			},
		},
		"IPv4-mapped": {
			spec: v1alpha1.PodIPPoolSpec{IPv6: ipv6(122, "::ffff:10.0.0.0/104", "::/64")},
			want: []string{
				`spec.ipv6.cidrs[0].cidr: Invalid value: "::ffff:10.0.0.0/104": holds IPv4-mapped addresses (::ffff:0.0.0.0/96), which are read as IPv4 elsewhere: use other addresses`,
				`spec.ipv6.cidrs[1].cidr: Invalid value: "::/64": holds IPv4-mapped addresses (::ffff:0.0.0.0/96), which are read as IPv4 elsewhere: use other addresses`,
			},
		},
		"no addresses for pods": {
			spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "0.0.0.0/0", "127.0.0.0/16"), IPv6: ipv6(122, "fe80::/64")},
			want: []string{
				`spec.ipv4.cidrs[0].cidr: Invalid value: "0.0.0.0/0": holds addresses that pods cannot have: list a /8 or narrower`,
				`spec.ipv4.cidrs[1].cidr: Invalid value: "127.0.0.0/16": holds addresses that pods cannot have`,
				`spec.ipv6.cidrs[0].cidr: Invalid value: "fe80::/64": holds addresses that pods cannot have`,
			},
		},
		"smaller than a block": {
			spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.20.0.0/28")},
			want: []string{`spec.ipv4.cidrs[0].cidr: Invalid value: "10.20.0.0/28": is smaller than one block (/27 = 32 addresses): list a /27 or wider, or raise blockSize`},
		},
		"overlap, repeat": {
			spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.20.0.0/24", "10.20.0.0/16", "10.20.0.0/24")},
			want: []string{
				`spec.ipv4.cidrs[1].cidr: Invalid value: "10.20.0.0/16": overlaps 10.20.0.0/24 of the same pool: keep one of them`,
				`spec.ipv4.cidrs[2].cidr: Invalid value: "10.20.0.0/24": overlaps 10.20.0.0/24 of the same pool: keep one of them`,
			},
		},
		"block sizes": {
			spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(31, "10.0.0.0/8"), IPv6: ipv6(115, "fd00::/48")},
			want: []string{
				"spec.ipv4.blockSize: Invalid value: 31: must be a prefix length from /20 = 4096 addresses to /30 = 4 addresses in crd mode, where a CiliumNode lists each address of a block",
				"spec.ipv6.blockSize: Invalid value: 115: must be a prefix length from /116 = 4096 addresses to /126 = 4 addresses in crd mode, where a CiliumNode lists each address of a block",
			},
		},
		"block sizes, of no mode": {
			spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(15, "10.0.0.0/8")},
			want: []string{"spec.ipv4.blockSize: Invalid value: 15: must be a prefix length from /20 = 4096 addresses to /30 = 4 addresses"},
		},
		"selector": {
			spec: changed(func(s *v1alpha1.PodIPPoolSpec) {
				s.NodeSelector = &metav1.LabelSelector{
					MatchLabels:      map[string]string{"-zone": "a"},
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "In"}},
				}
			}),
			want: []string{
				`spec.nodeSelector.matchLabels: Invalid value: "-zone": name part must consist of alphanumeric characters`,
				"spec.nodeSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
			},
		},
		"reserved": {
			spec: changed(func(s *v1alpha1.PodIPPoolSpec) {
				s.Reserved = reserve("10.20.0.0/15", "10.21.0.0/32", "10.20.0.1", "fd00::/64", "10.20.0.1/24")
			}),
			want: []string{
				`spec.reserved[0].cidr: Invalid value: "10.20.0.0/15": lies outside the pool's CIDRs, at least in part: reserve addresses of the pool only`,
				`spec.reserved[1].cidr: Invalid value: "10.21.0.0/32": lies outside the pool's CIDRs, at least in part: reserve addresses of the pool only`,
				`spec.reserved[2].cidr: Invalid value: "10.20.0.1": is not a CIDR: write it like 10.20.0.0/16 or fd00:10::/48`,
				`spec.reserved[3].cidr: Invalid value: "fd00::/64": lies outside the pool's CIDRs, at least in part: reserve addresses of the pool only`,
				`spec.reserved[4].cidr: Invalid value: "10.20.0.1/24": has host bits set: write 10.20.0.0/24`,
			},
		},
		"reserved is not blamed for a broken range": {
			spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.20.0.0"), Reserved: reserve("10.20.0.0/28")},
			want: []string{`spec.ipv4.cidrs[0].cidr: Invalid value: "10.20.0.0": is not a CIDR: write it like 10.20.0.0/16 or fd00:10::/48`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := object("p", tt.spec)
			if tt.name != "" {
				obj.Name = tt.name
			}
			_, err := crd.PoolFrom(obj, defaults())
			checkProblems(t, err, tt.want)
		})
	}
}

// checkProblems compares the problems in err with the prefixes of those wanted.
func checkProblems(t *testing.T, err error, want []string) {
	t.Helper()
	var got []string
	if err != nil {
		var agg utilerrors.Aggregate
		if !errors.As(err, &agg) {
			t.Fatalf("%v is no aggregate", err)
		}
		for i, e := range agg.Errors() {
			got = append(got, e.Error())
			if i < len(want) && strings.HasPrefix(got[i], want[i]) {
				got[i] = want[i]
			}
		}
	}
	checkEqual(t, "policy", want, got)
}
