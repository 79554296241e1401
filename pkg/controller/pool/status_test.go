package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// statusOf returns the status of a pool as the pool controller would write it, while these
// blocks, and others of other pools, are held.
func statusOf(t *testing.T, obj *v1alpha1.PodIPPool, blocks ...crd.Block) v1alpha1.PodIPPoolStatus {
	t.Helper()
	ledger := state.ReadyLedger(blocks...)
	pools := state.NewPools(fixtures.Defaults(), ledger)
	pools.Set(obj)
	obj = obj.DeepCopy()
	usage := poolUsage{PoolUsage: state.UsageOf(pools.Get(obj.Name), ledger.PoolBlocks(obj.Name), ledger.Free)}
	usage.fill(&obj.Status)
	setConditions(obj, pools.Get(obj.Name), pools.Invalid(obj.Name), usage, fixtures.Noon())
	return obj.Status
}

func addresses(n v1alpha1.StateCounts) v1alpha1.AddressCounts {
	return v1alpha1.AddressCounts{StateCounts: n}
}

func TestPoolCounts(t *testing.T) {
	dual := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	dual.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 122, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/48"}}}
	narrow := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	narrow.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/125"}}}
	reserving := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	reserving.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.0/30"}, {CIDR: "10.0.0.5/32"}}
	draining := fixtures.PodIPPool("p", 1, "10.0.0.0/29", "10.0.0.8/29")
	draining.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain

	leaving := fixtures.At(fixtures.Block("10.0.0.4/30", "p", "b", 2), 3, ipalloc.Draining)
	resting := fixtures.At(fixtures.Block("10.0.0.8/30", "p", "b", 4), 5, ipalloc.CoolingDown)
	tests := map[string]struct {
		pool   *v1alpha1.PodIPPool
		blocks []crd.Block
		want   v1alpha1.PodIPPoolStatus // without conditions
	}{
		"untouched": {
			pool: fixtures.PodIPPool("p", 1, "10.0.0.0/28"),
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(0)), IPv4: &v1alpha1.FamilyStatus{
				Blocks: v1alpha1.StateCounts{Assignable: 4, Free: 4}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 8, Free: 8}),
			}},
		},
		"a block in each phase, and one of another pool": {
			pool:   fixtures.PodIPPool("p", 1, "10.0.0.0/28"),
			blocks: []crd.Block{fixtures.Block("10.0.0.0/30", "p", "a", 1), leaving, resting, fixtures.Block("10.9.0.0/30", "q", "c", 9)},
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(75)), Nodes: 2, IPv4: &v1alpha1.FamilyStatus{
				Blocks:    v1alpha1.StateCounts{Assignable: 4, Held: 3, InService: 1, Draining: 1, CoolingDown: 1, Free: 1},
				Addresses: addresses(v1alpha1.StateCounts{Assignable: 8, Held: 6, InService: 2, Draining: 2, CoolingDown: 2, Free: 2}),
				CIDRs:     []v1alpha1.HeldCIDR{{CIDR: "10.0.0.0/28", Blocks: 3}},
			}},
		},
		"a block that overlaps a reserved range is none": {
			pool: reserving,
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(0)), IPv4: &v1alpha1.FamilyStatus{
				Blocks: v1alpha1.StateCounts{Assignable: 2, Free: 2}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 4, Free: 4}),
			}},
		},
		"but for one that was held before": {
			pool:   reserving,
			blocks: []crd.Block{fixtures.Block("10.0.0.4/30", "p", "a", 1)},
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(33)), Nodes: 1, IPv4: &v1alpha1.FamilyStatus{
				Blocks: v1alpha1.StateCounts{Assignable: 3, Held: 1, InService: 1, Free: 2}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 5, Held: 1, InService: 1, Free: 4}),
				CIDRs: []v1alpha1.HeldCIDR{{CIDR: "10.0.0.0/28", Blocks: 1}},
			}},
		},
		"the remainder of a block": {
			pool: fixtures.Edited(reserving, func(s *v1alpha1.PodIPPoolSpec) { s.ReservedBlockPolicy = v1alpha1.PublishRemainder }),
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(0)), IPv4: &v1alpha1.FamilyStatus{
				Blocks: v1alpha1.StateCounts{Assignable: 3, Free: 3}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 5, Free: 5}),
			}},
		},
		"what drains is not free": {
			pool:   draining,
			blocks: []crd.Block{fixtures.Block("10.0.0.8/30", "p", "a", 1)},
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(50)), Nodes: 1, IPv4: &v1alpha1.FamilyStatus{
				Blocks: v1alpha1.StateCounts{Assignable: 2, Held: 1, InService: 1, Free: 1}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 4, Held: 2, InService: 2, Free: 2}),
				CIDRs: []v1alpha1.HeldCIDR{{CIDR: "10.0.0.8/29", Blocks: 1}},
			}},
		},
		"what drains counts while a node holds it": {
			pool:   draining,
			blocks: []crd.Block{fixtures.Block("10.0.0.8/30", "p", "a", 1), leaving},
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(66)), Nodes: 2, IPv4: &v1alpha1.FamilyStatus{
				Blocks: v1alpha1.StateCounts{Assignable: 3, Held: 2, InService: 1, Draining: 1, Free: 1}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 6, Held: 4, InService: 2, Draining: 2, Free: 2}),
				CIDRs: []v1alpha1.HeldCIDR{{CIDR: "10.0.0.0/29", Blocks: 1}, {CIDR: "10.0.0.8/29", Blocks: 1}},
			}},
		},
		"all is cordoned, and a block is held": {
			pool:   withPolicy(fixtures.PodIPPool("p", 1, "10.0.0.0/24"), v1alpha1.AllocationCordon),
			blocks: []crd.Block{fixtures.Block("10.0.0.8/30", "p", "a", 1)},
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(100)), Nodes: 1, IPv4: &v1alpha1.FamilyStatus{
				Blocks: v1alpha1.StateCounts{Assignable: 1, Held: 1, InService: 1}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 2, Held: 2, InService: 2}),
				CIDRs: []v1alpha1.HeldCIDR{{CIDR: "10.0.0.0/24", Blocks: 1}},
			}},
		},
		"all is cordoned, and no block is held": {
			pool: withPolicy(fixtures.PodIPPool("p", 1, "10.0.0.0/24"), v1alpha1.AllocationCordon),
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(100)), IPv4: &v1alpha1.FamilyStatus{}},
		},
		"being deleted": {
			pool:   fixtures.BeingDeleted(fixtures.PodIPPool("p", 1, "10.0.0.0/24")),
			blocks: []crd.Block{leaving},
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(100)), Nodes: 1, IPv4: &v1alpha1.FamilyStatus{
				Blocks: v1alpha1.StateCounts{Assignable: 1, Held: 1, Draining: 1}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 2, Held: 2, Draining: 2}),
				CIDRs: []v1alpha1.HeldCIDR{{CIDR: "10.0.0.0/24", Blocks: 1}},
			}},
		},
		"another pool holds a block of the range": {
			pool:   fixtures.PodIPPool("p", 1, "10.0.0.0/28"),
			blocks: []crd.Block{fixtures.Block("10.0.0.0/30", "q", "c", 9)},
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(0)), IPv4: &v1alpha1.FamilyStatus{
				Blocks: v1alpha1.StateCounts{Assignable: 3, Free: 3}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 6, Free: 6}),
			}},
		},
		"dual stack, its second family fuller": {
			pool:   narrow,
			blocks: []crd.Block{fixtures.Block("10.0.0.0/30", "p", "a", 1), fixtures.Block("fd00::/126", "p", "a", 2)},
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(50)), Nodes: 1,
				IPv4: &v1alpha1.FamilyStatus{
					Blocks: v1alpha1.StateCounts{Assignable: 4, Held: 1, InService: 1, Free: 3}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 8, Held: 2, InService: 2, Free: 6}),
					CIDRs: []v1alpha1.HeldCIDR{{CIDR: "10.0.0.0/28", Blocks: 1}},
				},
				IPv6: &v1alpha1.FamilyStatus{
					Blocks: v1alpha1.StateCounts{Assignable: 2, Held: 1, InService: 1, Free: 1}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 4, Held: 2, InService: 2, Free: 2}),
					CIDRs: []v1alpha1.HeldCIDR{{CIDR: "fd00::/125", Blocks: 1}},
				}},
		},
		"dual stack, and more than can be counted": {
			pool: dual,
			want: v1alpha1.PodIPPoolStatus{HeldPercent: new(int32(0)),
				IPv4: &v1alpha1.FamilyStatus{
					Blocks: v1alpha1.StateCounts{Assignable: 4, Free: 4}, Addresses: addresses(v1alpha1.StateCounts{Assignable: 8, Free: 8}),
				},
				IPv6: &v1alpha1.FamilyStatus{
					Blocks:    v1alpha1.StateCounts{Assignable: 1<<53 - 1, Free: 1<<53 - 1},
					Addresses: addresses(v1alpha1.StateCounts{Assignable: 1<<53 - 1, Free: 1<<53 - 1}),
				}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := statusOf(t, test.pool, test.blocks...)
			got.Conditions = nil
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			for _, f := range []*v1alpha1.FamilyStatus{got.IPv4, got.IPv6} {
				if f == nil {
					continue
				}
				for _, n := range []v1alpha1.StateCounts{f.Blocks, f.Addresses.StateCounts} {
					if n.Held != n.InService+n.Draining+n.CoolingDown || uint64(n.Assignable) != min(uint64(n.Held)+uint64(n.Free), 1<<53-1) {
						t.Errorf("the counts do not add up: %+v", n)
					}
				}
				if u := (state.FamilyUsage{Status: *f}); (f.Blocks.Free == 0) != (u.Full() == 100) {
					t.Errorf("%d blocks are free, and %d %% are not", f.Blocks.Free, u.Full())
				}
			}
		})
	}
}

// withPolicy sets the allocation policies of a pool's CIDRs, in their order.
func withPolicy(obj *v1alpha1.PodIPPool, policies ...v1alpha1.AllocationPolicy) *v1alpha1.PodIPPool {
	for i, p := range policies {
		obj.Spec.IPv4.CIDRs[i].AllocationPolicy = p
	}
	return obj
}

func TestPoolConditions(t *testing.T) {
	paused := fixtures.PodIPPool("p", 1, "10.0.0.0/30")
	paused.Spec.Paused = new(true)
	tests := map[string]struct {
		pool   *v1alpha1.PodIPPool
		blocks []crd.Block
		want   map[string]metav1.ConditionStatus
		ready  string // the reason of Ready
	}{
		"serving": {
			pool:  fixtures.PodIPPool("p", 1, "10.0.0.0/30"),
			want:  map[string]metav1.ConditionStatus{v1alpha1.PoolReady: "True", v1alpha1.PoolExhausted: "False", v1alpha1.PoolOverlapping: "False", v1alpha1.PoolReservedHeld: "False"},
			ready: ReasonServing,
		},
		"full": {
			pool:   fixtures.PodIPPool("p", 1, "10.0.0.0/30"),
			blocks: []crd.Block{fixtures.Block("10.0.0.0/30", "p", "a", 1)},
			want:   map[string]metav1.ConditionStatus{v1alpha1.PoolReady: "True", v1alpha1.PoolExhausted: "True", v1alpha1.PoolOverlapping: "False", v1alpha1.PoolReservedHeld: "False"},
			ready:  ReasonServing,
		},
		"paused": {
			pool:  paused,
			want:  map[string]metav1.ConditionStatus{v1alpha1.PoolReady: "False", v1alpha1.PoolExhausted: "False", v1alpha1.PoolOverlapping: "False", v1alpha1.PoolReservedHeld: "False"},
			ready: ReasonPaused,
		},
		"being deleted": {
			pool:   fixtures.BeingDeleted(fixtures.PodIPPool("p", 1, "10.0.0.0/29")),
			blocks: []crd.Block{fixtures.Block("10.0.0.0/30", "p", "a", 1)},
			want:   map[string]metav1.ConditionStatus{v1alpha1.PoolReady: "False", v1alpha1.PoolExhausted: "False", v1alpha1.PoolOverlapping: "False", v1alpha1.PoolReservedHeld: "False"},
			ready:  ReasonDeleting,
		},
		"being deleted, with no free block": {
			pool:   fixtures.BeingDeleted(fixtures.PodIPPool("p", 1, "10.0.0.0/30")),
			blocks: []crd.Block{fixtures.Block("10.0.0.0/30", "p", "a", 1)},
			want:   map[string]metav1.ConditionStatus{v1alpha1.PoolReady: "False", v1alpha1.PoolExhausted: "False", v1alpha1.PoolOverlapping: "False", v1alpha1.PoolReservedHeld: "False"},
			ready:  ReasonDeleting,
		},
		"all of it drains": {
			pool:   withPolicy(fixtures.PodIPPool("p", 1, "10.0.0.0/29"), v1alpha1.AllocationDrain),
			blocks: []crd.Block{fixtures.Block("10.0.0.0/30", "p", "a", 1)},
			want:   map[string]metav1.ConditionStatus{v1alpha1.PoolReady: "True", v1alpha1.PoolExhausted: "False", v1alpha1.PoolOverlapping: "False", v1alpha1.PoolReservedHeld: "False"},
			ready:  ReasonPhasingOut,
		},
		"all of it is cordoned, and no block is left": {
			pool:  withPolicy(fixtures.PodIPPool("p", 1, "10.0.0.0/29"), v1alpha1.AllocationCordon),
			want:  map[string]metav1.ConditionStatus{v1alpha1.PoolReady: "True", v1alpha1.PoolExhausted: "False", v1alpha1.PoolOverlapping: "False", v1alpha1.PoolReservedHeld: "False"},
			ready: ReasonEmpty,
		},
		"one CIDR drains, and the other is full": {
			pool:   withPolicy(fixtures.PodIPPool("p", 1, "10.0.0.0/30", "10.0.0.4/30"), v1alpha1.AllocationDrain, v1alpha1.AllocationAllocate),
			blocks: []crd.Block{fixtures.Block("10.0.0.4/30", "p", "a", 1)},
			want:   map[string]metav1.ConditionStatus{v1alpha1.PoolReady: "True", v1alpha1.PoolExhausted: "True", v1alpha1.PoolOverlapping: "False", v1alpha1.PoolReservedHeld: "False"},
			ready:  ReasonServing,
		},
		"never valid: what is free is unknown": {
			pool:  fixtures.Invalidated(fixtures.PodIPPool("p", 1, "10.0.0.0/29")),
			want:  map[string]metav1.ConditionStatus{v1alpha1.PoolReady: "False", v1alpha1.PoolExhausted: "Unknown", v1alpha1.PoolOverlapping: "Unknown", v1alpha1.PoolReservedHeld: "Unknown"},
			ready: ReasonInvalid,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			conditions := statusOf(t, test.pool, test.blocks...).Conditions
			got := map[string]metav1.ConditionStatus{}
			for _, c := range conditions {
				got[c.Type] = c.Status
				if c.Message == "" || len(c.Message) > 32768 {
					t.Errorf("condition %s has a message of %d bytes", c.Type, len(c.Message))
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if ready := conditions[0]; ready.Type != v1alpha1.PoolReady || ready.Reason != test.ready {
				t.Errorf("the first condition is %+v, want Ready with reason %s", ready, test.ready)
			}
		})
	}
}

// Messages about as many CIDRs and values as the CRD allows fit into a condition, with their remedy.
func TestMessagesOfALargePool(t *testing.T) {
	large := func(day int, change func(*v1alpha1.PodIPPoolSpec)) *v1alpha1.PodIPPool {
		obj := fixtures.PodIPPool(strings.Repeat("p", 60+day), day)
		for i := range 128 {
			obj.Spec.IPv4.CIDRs = append(obj.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: fmt.Sprintf("100.64.%d.0/24", i)})
		}
		obj.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 122}
		for i := range 128 {
			obj.Spec.IPv6.CIDRs = append(obj.Spec.IPv6.CIDRs, v1alpha1.PoolCIDR{CIDR: fmt.Sprintf("fd00:1234:5678:1%03x::/64", i)})
		}
		change(&obj.Spec)
		return obj
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.PodIPPoolSpec)
		remedy string
	}{
		"a copy of another": {func(*v1alpha1.PodIPPoolSpec) {}, "Take the range out of one of the two pools"},
		"each CIDR is wrong": {func(s *v1alpha1.PodIPPoolSpec) {
			for i := range s.IPv4.CIDRs {
				s.IPv4.CIDRs[i].CIDR = fmt.Sprintf("100.64.%d.1/24", i)
			}
		}, "nodes take blocks of the next pool"},
		"a long selector": {func(s *v1alpha1.PodIPPoolSpec) {
			wrong := metav1.LabelSelectorRequirement{Key: "zone", Operator: metav1.LabelSelectorOpExists}
			for i := range 5000 {
				wrong.Values = append(wrong.Values, fmt.Sprint("zone-", i))
			}
			s.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{wrong}}
		}, "nodes take blocks of the next pool"},
	} {
		t.Run(name, func(t *testing.T) {
			older, obj := large(1, func(*v1alpha1.PodIPPoolSpec) {}), large(2, test.change)
			pools := state.NewPools(fixtures.Defaults(), state.ReadyLedger())
			pools.Set(older)
			pools.Set(obj)
			setConditions(obj, pools.Get(obj.Name), pools.Invalid(obj.Name), poolUsage{}, fixtures.Noon())
			for _, c := range obj.Status.Conditions {
				if len(c.Message) > maxMessage || c.Type == v1alpha1.PoolReady && !strings.Contains(c.Message, test.remedy) {
					t.Errorf("%s has %d bytes: %.200s", c.Type, len(c.Message), c.Message)
				}
			}
		})
	}
}

// Without a change there is no write, however much later.
func TestPoolConditionsAtRest(t *testing.T) {
	obj := fixtures.PodIPPool("p", 1, "10.0.0.0/29")
	pool := fixtures.PoolOf(t, obj)
	usage := poolUsage{PoolUsage: state.UsageOf(pool, slices.Values([]crd.Block{fixtures.Block("10.0.0.0/30", "p", "a", 1)}), func(ipalloc.Cut) uint64 { return 1 })}
	for _, invalid := range []error{nil, errors.New("wrong")} {
		setConditions(obj, pool, invalid, usage, fixtures.Noon())
		usage.fill(&obj.Status)
		before := obj.Status.DeepCopy()
		setConditions(obj, pool, invalid, usage, fixtures.Noon().Add(time.Hour))
		usage.fill(&obj.Status)
		if !equality.Semantic.DeepEqual(before, &obj.Status) {
			t.Errorf("the status drifts:\n%s", cmp.Diff(before, &obj.Status))
		}
	}
}

// The stored selector of all nodes, which the API server refuses by now, is in force, and the pool says so.
func TestReadySaysThatAllNodesAreSelected(t *testing.T) {
	for name, test := range map[string]struct {
		selector *metav1.LabelSelector
		says     bool
	}{
		"absent":      {},
		"empty":       {&metav1.LabelSelector{}, true},
		"of a label":  {&metav1.LabelSelector{MatchLabels: map[string]string{"rack": "r9"}}, false},
		"of a key":    {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "rack", Operator: metav1.LabelSelectorOpExists}}}, false},
		"of no label": {&metav1.LabelSelector{MatchLabels: map[string]string{}}, true},
	} {
		obj := fixtures.Edited(fixtures.PodIPPool("p", 1, "10.0.0.0/30"), func(s *v1alpha1.PodIPPoolSpec) { s.NodeSelector = test.selector })
		ready := meta.FindStatusCondition(statusOf(t, obj).Conditions, v1alpha1.PoolReady)
		if ready.Reason != ReasonServing || strings.Contains(ready.Message, "serves all nodes: write labels below matchLabels") != test.says {
			t.Errorf("%s: the pool is %+v", name, ready)
		}
	}
}

func TestReadyMessages(t *testing.T) {
	sized := func(bits int32) *crd.Pool {
		obj, d := fixtures.PodIPPool("p", 1, "10.0.0.0/24"), fixtures.Defaults()
		obj.Spec.IPv4.BlockSize, d.WholeBlocks = bits, true
		pool, err := crd.PoolFrom(obj, d)
		if err != nil {
			t.Fatal(err)
		}
		return pool
	}
	for want, test := range map[string]struct {
		poolUsage
		pool *crd.Pool
	}{
		"nodes get blocks of this pool as they need them": {},
		"paused or runs in shadow":                        {poolUsage: poolUsage{readOnly: true}},
		"for 252 pods beside":                             {pool: sized(24)},
		"for 4 pods beside":                               {pool: sized(29)},
		"for 0 pods beside":                               {pool: sized(30)},
	} {
		if got := test.servingWords(test.pool, ""); !strings.Contains(got, want) {
			t.Errorf("it serves: %q, want %q", got, want)
		}
	}
	for want, u := range map[string]poolUsage{"its finalizer goes once": {}, "waits for the blocks of a": {PoolUsage: state.PoolUsage{Held: 1, Nodes: 1, First: []string{"a"}}}} {
		if got := u.deletedWords(); !strings.Contains(got, want) {
			t.Errorf("it is deleted: %q, want %q", got, want)
		}
	}
}

// Counts of zero are written, so that users see them.
func TestZeroIsWritten(t *testing.T) {
	status := statusOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	body, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"nodes":0`, `"heldPercent":0`, `"inService":0`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
}

// In other modes a pool that names a Cilium pool reports that it serves no node.
func TestCiliumPoolInOtherModes(t *testing.T) {
	for _, mode := range []ciliumnode.Mode{ciliumnode.CRD, ciliumnode.Kubernetes} {
		t.Run(mode.String(), func(t *testing.T) {
			b := newBedIn(t, mode, fixtures.BluePool("10.8.0.0/28"))
			obj := fixtures.BluePool("10.8.0.0/28")
			setConditions(obj, b.Pools.Get("blues"), nil, poolUsage{}, fixtures.Noon())
			ready := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolReady)
			if ready.Status != metav1.ConditionFalse || ready.Reason != ReasonNoCiliumPools || !strings.Contains(ready.Message, "spec.ciliumPoolName is blue") {
				t.Errorf("Ready is %+v", ready)
			}
		})
	}
}

func TestMasqueradedCondition(t *testing.T) {
	cilium := &ciliumconfig.Config{Known: true, Data: map[string]string{"routing-mode": "native", "enable-ipv4-masquerade": "true", "ipv4-native-routing-cidr": "10.0.0.0/16"}}
	inside, outside := fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28")), fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.1.0.0/28"))
	for reason, c := range map[string]*condition{
		ReasonNotMasqueraded: masqueradedCondition(inside, cilium), ReasonInvalid: masqueradedCondition(nil, cilium), ReasonNotRead: masqueradedCondition(outside, nil),
	} {
		if c.reason != reason || (c.status == metav1.ConditionFalse) != (reason == ReasonNotMasqueraded) {
			t.Errorf("it says %+v, want %s", c, reason)
		}
	}
	if c := masqueradedCondition(outside, cilium); c.status != metav1.ConditionTrue || !strings.Contains(c.message, "10.1.0.0/28") {
		t.Errorf("of a pool outside it says %+v", c)
	}
}

// A message names the first few nodes.
func TestNodesLine(t *testing.T) {
	five := []string{"a", "b", "c", "d", "e"}
	for want, got := range map[string]string{
		"a, b": nodesLine(five[:2], 2), "a, b, c, d, e": nodesLine(five, 5), "a, b, c, d, e and 2 more": nodesLine(five, 7),
		"a, b, c, d, e and 1 more": nodesLine(append(five, "f"), 6), "a and 6 more": nodesLine(five[:1], 7), "": nodesLine(nil, 7),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Messages and used are words about a pool, and anything else is news.
func TestCompareWords(t *testing.T) {
	status := func(change func(*v1alpha1.PodIPPoolStatus)) *v1alpha1.PodIPPoolStatus {
		s := &v1alpha1.PodIPPoolStatus{
			IPv4:       &v1alpha1.FamilyStatus{Addresses: v1alpha1.AddressCounts{Used: ptr.To(int64(40))}},
			Conditions: []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionFalse, Reason: ReasonNodesShort, Message: "a", ObservedGeneration: 1}},
		}
		change(s)
		return s
	}
	for name, test := range map[string]struct {
		change      func(*v1alpha1.PodIPPoolStatus)
		alone, much bool
	}{
		"nothing":              {func(*v1alpha1.PodIPPoolStatus) {}, true, false},
		"a pod more":           {func(s *v1alpha1.PodIPPoolStatus) { s.IPv4.Addresses.Used = ptr.To(int64(41)) }, true, false},
		"two pods more":        {func(s *v1alpha1.PodIPPoolStatus) { s.IPv4.Addresses.Used = ptr.To(int64(42)) }, true, true},
		"another message":      {func(s *v1alpha1.PodIPPoolStatus) { s.Conditions[0].Message = "b" }, true, true},
		"another reason":       {func(s *v1alpha1.PodIPPoolStatus) { s.Conditions[0].Reason = ReasonServing }, false, false},
		"reason and message":   {func(s *v1alpha1.PodIPPoolStatus) { s.Conditions[0].Reason, s.Conditions[0].Message = "B", "b" }, false, true},
		"for another spec":     {func(s *v1alpha1.PodIPPoolStatus) { s.Conditions[0].ObservedGeneration = 2 }, false, false},
		"a block":              {func(s *v1alpha1.PodIPPoolStatus) { s.IPv4.Blocks.Held = 1 }, false, false},
		"the condition is new": {func(s *v1alpha1.PodIPPoolStatus) { s.Conditions[0].Type = v1alpha1.PoolExhausted }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if alone, much := compareWords(status(func(*v1alpha1.PodIPPoolStatus) {}), status(test.change)); alone != test.alone || much != test.much {
				t.Errorf("alone %t, much %t; want %t, %t", alone, much, test.alone, test.much)
			}
		})
	}
}
