package crd_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func TestCut(t *testing.T) {
	spec := v1alpha1.PodIPPoolSpec{IPv4: &v1alpha1.IPv4Ranges{
		CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.9.0.0/16"}, {CIDR: "10.1.0.0/16", AllocationPolicy: v1alpha1.AllocationDrain}, {CIDR: "10.2.0.0/16"},
			{CIDR: "10.3.0.0/16", AllocationPolicy: v1alpha1.AllocationCordon}, {CIDR: "10.4.0.0/16", AllocationPolicy: v1alpha1.AllocationAllocate}},
		BlockSize: 27,
	}}
	older := object("older", v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.2.0.0/24")})
	older.CreationTimestamp = birth(1)
	mine := object("mine", spec)
	mine.CreationTimestamp = birth(2)
	p := crd.ResolveOverlaps([]*crd.Pool{poolFrom(t, older), poolFrom(t, mine)})[0]

	cut, ok := p.Cut(ipalloc.IPv4)
	if diff := cmp.Diff(ipalloc.Cut{Ranges: prefixes("10.9.0.0/16", "10.4.0.0/16"), BlockBits: 27}, cut, compareNetip()); diff != "" || !ok {
		t.Errorf("Cut: %v %s", ok, diff)
	}
	whole, ok := p.FullCut(ipalloc.IPv4)
	if diff := cmp.Diff(ipalloc.Cut{Ranges: prefixes("10.9.0.0/16", "10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"), BlockBits: 27}, whole, compareNetip()); diff != "" || !ok {
		t.Errorf("Whole: %v %s", ok, diff)
	}
	if _, ok := p.Cut(ipalloc.IPv6); ok {
		t.Error("an IPv4 pool can be cut into IPv6 blocks")
	}

	spec.IPv4.CIDRs = spec.IPv4.CIDRs[1:2]
	if _, ok := pool(t, spec).Cut(ipalloc.IPv4); ok {
		t.Error("a pool that drains whole has something to claim")
	}
}

func TestOnGridAndDrains(t *testing.T) {
	p := pool(t, v1alpha1.PodIPPoolSpec{
		IPv4: &v1alpha1.IPv4Ranges{
			CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.1.0.0/16"}, {CIDR: "10.2.0.0/24", AllocationPolicy: v1alpha1.AllocationDrain},
				{CIDR: "10.4.0.0/24", AllocationPolicy: v1alpha1.AllocationCordon}},
			BlockSize: 27,
		},
	})
	tests := map[string]struct {
		block          string
		onGrid, drains bool
	}{
		"own":                  {"10.1.0.32/27", true, false},
		"in a draining range":  {"10.2.0.32/27", true, true},
		"in a cordoned range":  {"10.4.0.32/27", true, false},
		"outside":              {"10.3.0.0/27", false, true},
		"adopted, other size":  {"10.1.4.0/24", false, false},
		"wider than its range": {"10.2.0.0/23", false, true},
		"host bits":            {"10.1.0.33/27", false, false},
		"other family":         {"fd00::/122", false, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			block := prefixes(tt.block)[0]
			if got := p.OnGrid(block); got != tt.onGrid {
				t.Errorf("OnGrid is %v", got)
			}
			if got := p.Drains(block); got != tt.drains {
				t.Errorf("Drains is %v", got)
			}
		})
	}
}

func TestRank(t *testing.T) {
	named := func(name string, priority int32, change func(*v1alpha1.PodIPPool)) *crd.Pool {
		obj := object(name, v1alpha1.PodIPPoolSpec{Priority: priority, IPv4: ipv4(27, "10.0.0.0/16")})
		if change != nil {
			change(obj)
		}
		return poolFrom(t, obj)
	}
	zone := func(z string) func(*v1alpha1.PodIPPool) {
		return func(o *v1alpha1.PodIPPool) {
			o.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": z}}
		}
	}
	pools := []*crd.Pool{
		named("low", -5, nil),
		named("b", 0, zone("x")),
		named("a", 0, nil),
		named("elsewhere", 100, zone("y")),
		named("gone", 100, func(o *v1alpha1.PodIPPool) { o.DeletionTimestamp = ptr(birth(2)) }),
		named("paused", 7, func(o *v1alpha1.PodIPPool) { o.Spec.Paused = new(true) }),
	}
	tests := map[string]struct {
		labels labels.Set
		want   []string
	}{
		"in x":      {labels.Set{"zone": "x"}, []string{"paused", "a", "b", "low"}},
		"in y":      {labels.Set{"zone": "y"}, []string{"elsewhere", "paused", "a", "low"}},
		"no labels": {nil, []string{"paused", "a", "low"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range crd.Rank(pools, tt.labels) {
				got = append(got, p.Name)
			}
			checkEqual(t, "pools", tt.want, got)
		})
	}
}

// Labels that a Node gets late change its ruling pool, unless the pools above that one select by
// labels that kubelets register their Nodes with.
func TestRulingIsFinal(t *testing.T) {
	pool := func(name string, priority int32, selects map[string]string) *crd.Pool {
		obj := object(name, v1alpha1.PodIPPoolSpec{Priority: priority, IPv4: ipv4(27, "10.0.0.0/16")})
		if selects != nil {
			obj.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: selects}
		}
		return poolFrom(t, obj)
	}
	all, zone := pool("all", 0, nil), map[string]string{"zone": "x"}
	v6 := poolFrom(t, object("v6", v1alpha1.PodIPPoolSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: zone}, IPv6: ipv6(122, "fd00::/64")}))
	gone := pool("gone", 9, zone)
	gone.Deleting = true
	for name, tt := range map[string]struct {
		pools []*crd.Pool
		want  bool
	}{
		"no pool":                                 {nil, true},
		"one pool for all":                        {[]*crd.Pool{all}, true},
		"a zone's below":                          {[]*crd.Pool{all, pool("zone", -1, zone)}, true},
		"a zone's above":                          {[]*crd.Pool{all, pool("zone", 1, zone)}, false},
		"a zone's alone":                          {[]*crd.Pool{pool("zone", 1, zone)}, false},
		"a zone's above that is deleted":          {[]*crd.Pool{all, gone}, true},
		"a zone's of the other family":            {[]*crd.Pool{all, v6}, false},
		"one for its own system":                  {[]*crd.Pool{pool("os", 1, map[string]string{"kubernetes.io/os": "linux"})}, true},
		"above it, one for another system's zone": {[]*crd.Pool{all, pool("os", 1, map[string]string{"kubernetes.io/os": "plan9", "zone": "x"})}, true},
		"above it, one for its system's zone":     {[]*crd.Pool{all, pool("os", 1, map[string]string{"kubernetes.io/os": "linux", "zone": "x"})}, false},
	} {
		if got := crd.RulingIsFinal(tt.pools, labels.Set{"kubernetes.io/os": "linux", "zone": "x"}); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A pool that does not serve comes after all serving ones, at any priority.
func TestForFamily(t *testing.T) {
	named := func(name string, priority int32, spec v1alpha1.PodIPPoolSpec) *v1alpha1.PodIPPool {
		obj := object(name, spec)
		obj.Spec.Priority = priority
		return obj
	}
	v4 := func(list ...string) v1alpha1.PodIPPoolSpec { return v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, list...)} }
	pools := []*crd.Pool{
		poolFrom(t, named("good", 0, v4("10.0.0.0/16"))),
		frozenPool(t, named("invalid", 9, v4("nonsense"))),
		poolFrom(t, named("six", 8, v1alpha1.PodIPPoolSpec{IPv6: ipv6(122, "fd00::/64")})),
		poolFrom(t, named("low", -1, v4("10.2.0.0/16"))),
	}
	closed := named("closed", 7, v4("10.0.1.0/24"))
	closed.CreationTimestamp = birth(2)
	pools = append(pools, poolFrom(t, closed))
	draining := named("draining", 6, v4("10.1.0.0/16"))
	draining.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
	pools = append(pools, poolFrom(t, draining))
	stopped := named("stopped", 5, v4("10.3.0.0/16"))
	stopped.Spec.IPv4.CIDRs[0].AllocationPolicy, stopped.Spec.Paused = v1alpha1.AllocationCordon, new(true)

	names := func(f ipalloc.Family, pools []*crd.Pool) []string {
		var out []string
		resolved := crd.ResolveOverlaps(pools)
		for _, p := range crd.ForFamily(crd.Rank(resolved, nil), f, "") {
			out = append(out, p.Name)
		}
		return out
	}
	checkEqual(t, "IPv4", []string{"good", "low", "invalid", "closed", "draining"}, names(ipalloc.IPv4, pools))
	checkEqual(t, "IPv6", []string{"six"}, names(ipalloc.IPv6, pools))
	// A pause means that no node should change, even if the pool assigns no block.
	if got := names(ipalloc.IPv4, append(pools, poolFrom(t, stopped))); got[0] != "stopped" {
		t.Errorf("with a paused pool: %v", got)
	}
}

// A pool phases out once none of its CIDRs allocates, or it is being deleted; a pool that
// cannot be parsed does not.
func TestPhasesOut(t *testing.T) {
	spec := func(policies ...v1alpha1.AllocationPolicy) v1alpha1.PodIPPoolSpec {
		ranges := ipv4(27, "10.1.0.0/16", "10.2.0.0/16")
		for i, policy := range policies {
			ranges.CIDRs[i].AllocationPolicy = policy
		}
		return v1alpha1.PodIPPoolSpec{IPv4: ranges}
	}
	deleted := pool(t, spec())
	deleted.Deleting = true
	tests := map[string]struct {
		pool *crd.Pool
		want bool
	}{
		"both CIDRs allocate":   {pool(t, spec()), false},
		"one drains":            {pool(t, spec(v1alpha1.AllocationDrain)), false},
		"one is cordoned":       {pool(t, spec(v1alpha1.AllocationCordon)), false},
		"both drain":            {pool(t, spec(v1alpha1.AllocationDrain, v1alpha1.AllocationDrain)), true},
		"cordoned and draining": {pool(t, spec(v1alpha1.AllocationCordon, v1alpha1.AllocationDrain)), true},
		"deleted":               {deleted, true},
		"cannot be read":        {frozenPool(t, object("p", v1alpha1.PodIPPoolSpec{IPv4: ipv4(99, "nonsense")})), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.pool.PhasesOut(ipalloc.IPv4); got != tt.want {
				t.Errorf("PhasesOut is %v", got)
			}
			if tt.pool.PhasesOut(ipalloc.IPv6) {
				t.Error("it phases out IPv6, which it lacks")
			}
		})
	}
}

// A pool with an unreadable spec assigns no block, reclaims none, and withholds its reserved
// ranges.
func TestFrozenPool(t *testing.T) {
	spec := v1alpha1.PodIPPoolSpec{IPv4: ipv4(99, "nonsense"), Reserved: []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.0/29"}, {CIDR: "what?"}}}
	spec.Cooldown = ptr[v1alpha1.Duration]("1h")
	p := frozenPool(t, object("p", spec))
	if _, ok := p.Cut(ipalloc.IPv4); ok || p.MayRule(ipalloc.IPv4) {
		t.Error("it gives blocks out")
	}
	if p.Paused {
		t.Error("it stops nodes that other pools serve")
	}
	if p.Drains(prefixes("10.0.0.0/27")[0]) || !p.Policy.ReclaimDisabled {
		t.Error("it asks a block back")
	}
	if !p.Selects(nil) {
		t.Error("it does not select its nodes")
	}
	if p.Cooldown != time.Hour || p.NodeGoneCooldown != time.Hour {
		t.Errorf("its blocks cool down for %s and %s", p.Cooldown, p.NodeGoneCooldown)
	}
	obj := object("p", v1alpha1.PodIPPoolSpec{IPv4: ipv4(99, "nonsense")})
	if p := frozenPool(t, obj); p.Cooldown != time.Minute || p.NodeGoneCooldown != 10*time.Minute {
		t.Errorf("by default its blocks cool down for %s and %s", p.Cooldown, p.NodeGoneCooldown)
	}
	checkEqual(t, "reserved", prefixes("10.0.0.0/29"), p.Skipped(ipalloc.IPv4))
}
