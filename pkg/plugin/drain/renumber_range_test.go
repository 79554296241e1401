package drain

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func cidrMove(from, to string) renumbering {
	return renumbering{oldRange: from, newRange: to, added: netip.MustParsePrefix(to), newPool: "p", old: target{pool: "p", ranges: []netip.Prefix{netip.MustParsePrefix(from)}}}
}

func TestEdit(t *testing.T) {
	const drain, allocate = v1alpha1.AllocationDrain, v1alpha1.AllocationAllocate
	for name, test := range map[string]struct {
		had, want []v1alpha1.PoolCIDR
	}{
		"the first time": {
			[]v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/24"}},
			[]v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/24", AllocationPolicy: drain}, {CIDR: "10.1.0.0/24"}},
		},
		"again": {
			[]v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/24", AllocationPolicy: drain}, {CIDR: "10.1.0.0/24"}},
			[]v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/24", AllocationPolicy: drain}, {CIDR: "10.1.0.0/24"}},
		},
		"the other way around": {
			[]v1alpha1.PoolCIDR{{CIDR: "10.1.0.0/24", AllocationPolicy: drain}, {CIDR: "10.0.0.0/24"}, {CIDR: "10.2.0.0/24"}},
			[]v1alpha1.PoolCIDR{{CIDR: "10.1.0.0/24", AllocationPolicy: allocate}, {CIDR: "10.0.0.0/24", AllocationPolicy: drain}, {CIDR: "10.2.0.0/24"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := fixtures.PodIPPool("p", 1, "10.0.0.0/24")
			pool.Spec.IPv4.CIDRs = test.had
			m := cidrMove("10.0.0.0/24", "10.1.0.0/24")
			if changes := m.changes(pool); changes == cmp.Equal(test.had, test.want) {
				t.Errorf("it changes the pool: %t", changes)
			}
			m.edit(pool)
			if diff := cmp.Diff(test.want, pool.Spec.IPv4.CIDRs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	v6 := fixtures.DualStack()
	m := cidrMove("fd00::/120", "fd01::/120")
	m.edit(v6)
	want := []v1alpha1.PoolCIDR{{CIDR: "fd00::/120", AllocationPolicy: drain}, {CIDR: "fd01::/120"}}
	if diff := cmp.Diff(want, v6.Spec.IPv6.CIDRs); diff != "" {
		t.Errorf("IPv6 (-want +got):\n%s", diff)
	}
	if got := v6.Spec.IPv4.CIDRs; len(got) != 1 || got[0].AllocationPolicy != "" {
		t.Errorf("IPv4 is %v", got)
	}
}

func TestTakeOut(t *testing.T) {
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/24", "10.1.0.0/24")
	pool.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.0/28"}, {CIDR: "10.1.0.0/28"}}
	m := cidrMove("10.0.0.0/24", "10.1.0.0/24")
	m.takeOut(pool)
	if got := pool.Spec.IPv4.CIDRs; len(got) != 1 || got[0].CIDR != "10.1.0.0/24" {
		t.Errorf("CIDRs are %v", got)
	}
	if got := pool.Spec.Reserved; len(got) != 1 || got[0].CIDR != "10.1.0.0/28" {
		t.Errorf("reserved are %v", got)
	}
}
