package crd_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A pool with thresholds that contradict each other or the operator's flags serves with the nearest
// valid policy, and reports that.
func TestWrongPolicyDoesNotStopAPool(t *testing.T) {
	tests := map[string]struct {
		expand   v1alpha1.Expand
		reclaim  v1alpha1.Reclaim
		defaults func(*expand.Policy)
		want     func(*expand.Policy) // from the defaults
		problems []string
	}{
		"sound": {
			expand: v1alpha1.Expand{ThresholdPercent: ptr[int32](60)},
			want:   func(p *expand.Policy) { p.ExpandPercent = 60 },
		},
		"expand meets the flag of reclaim": {
			expand: v1alpha1.Expand{ThresholdPercent: ptr[int32](50)},
			want:   func(p *expand.Policy) { p.ExpandPercent, p.ReclaimPercent = 50, 20 },
		},
		"reclaim above the flag of expand": {
			reclaim: v1alpha1.Reclaim{ThresholdPercent: ptr[int32](85)},
			want:    func(p *expand.Policy) { p.ExpandPercent, p.ReclaimPercent = 100, 85 },
		},
		"reclaim above expand": {
			expand:   v1alpha1.Expand{ThresholdPercent: ptr[int32](40)},
			reclaim:  v1alpha1.Reclaim{ThresholdPercent: ptr[int32](60)},
			want:     func(p *expand.Policy) { p.ExpandPercent, p.ReclaimPercent = 40, 39 },
			problems: []string{"spec.reclaim.thresholdPercent: Invalid value: 60: must be below expand.thresholdPercent, which is 40, or"},
		},
		"flags that contradict each other, as reclaim is disabled by flag": {
			reclaim:  v1alpha1.Reclaim{Policy: v1alpha1.ReclaimWhenIdle},
			defaults: func(p *expand.Policy) { p.ReclaimDisabled, p.ReclaimPercent = true, 90 },
			want:     func(p *expand.Policy) { p.ReclaimDisabled, p.ReclaimPercent = false, 79 },
			problems: []string{"spec.reclaim.thresholdPercent: Invalid value: 90: must be below expand.thresholdPercent, which is 80, or"},
		},
		"a flag was changed": {
			expand:   v1alpha1.Expand{ThresholdPercent: ptr[int32](60)},
			defaults: func(p *expand.Policy) { p.ReclaimPercent = 70 },
			want:     func(p *expand.Policy) { p.ExpandPercent, p.ReclaimPercent = 60, 50 },
		},
		"the lowest threshold there is": {
			expand: v1alpha1.Expand{ThresholdPercent: ptr[int32](1)},
			want:   func(p *expand.Policy) { p.ExpandPercent, p.ReclaimPercent = 1, 0 },
		},
		"the highest threshold there is": {
			reclaim: v1alpha1.Reclaim{ThresholdPercent: ptr[int32](99)},
			want:    func(p *expand.Policy) { p.ExpandPercent, p.ReclaimPercent = 100, 99 },
		},
		"as many free addresses as fit": {
			expand: v1alpha1.Expand{MinFreeAddresses: ptr[int32](4095)},
			want:   func(p *expand.Policy) { p.MinFree = 4095 },
		},
		"free addresses beyond the operator's limit": {
			expand:   v1alpha1.Expand{MinFreeAddresses: ptr[int32](4096)},
			want:     func(p *expand.Policy) { p.MinFree = 4095 },
			problems: []string{"spec.expand.minFreeAddresses: Invalid value: 4096: must be below --max-addresses-per-node, which is 4096: lower it or raise the flag. Until then the operator uses 4095"},
		},
		"out of bounds, as in an object older than the bounds": {
			expand:  v1alpha1.Expand{ThresholdPercent: ptr[int32](0), MinFreeAddresses: ptr[int32](-1), MaxBlocksPerNode: ptr[int32](1025)},
			reclaim: v1alpha1.Reclaim{ThresholdPercent: ptr[int32](100), IdleFor: ptr[v1alpha1.Duration]("-1s")},
			problems: []string{
				"spec.expand.thresholdPercent: Invalid value: 0: must be from 1 to 100. Until then the operator uses its default, 80",
				"spec.expand.minFreeAddresses: Invalid value: -1: must be from 0 to 4096",
				"spec.expand.maxBlocksPerNode: Invalid value: 1025: must be from 1 to 1024",
				"spec.reclaim.thresholdPercent: Invalid value: 100: must be from 0 to 99",
				`spec.reclaim.idleFor: Invalid value: "-1s": is not a duration in whole h, m, s or ms: write it like 90s, 1m or 1h30m. Until then the operator uses its default, 10m0s`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := defaults()
			if tt.defaults != nil {
				tt.defaults(&d.Policy)
			}
			want := d.Policy
			if tt.want != nil {
				tt.want(&want)
			}
			spec := v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/16"), Expand: tt.expand, Reclaim: tt.reclaim}
			p, err := crd.PoolFrom(object("p", spec), d)
			if err != nil {
				t.Fatalf("the pool does not serve: %v", err)
			}
			checkEqual(t, "policy", want, p.Policy)
			if err := p.Policy.Validate(); err != nil {
				t.Error(err)
			}
			checkProblems(t, p.PolicyProblem, tt.problems)
			if !p.MayRule(ipalloc.IPv4) {
				t.Error("the pool does not serve")
			}
		})
	}
}

// A node may hold as many blocks of single addresses as it has pods, unless the pool says otherwise.
func TestMaxBlocksOfSingleAddresses(t *testing.T) {
	d := defaults()
	d.CiliumPools, d.WholeBlocks = true, true
	for name, tt := range map[string]struct {
		spec v1alpha1.PodIPPoolSpec
		want int
	}{
		"a block of many":   {v1alpha1.PodIPPoolSpec{IPv4: ipv4(31, "10.0.0.0/16")}, d.Policy.MaxBlocks},
		"of one":            {v1alpha1.PodIPPoolSpec{IPv4: ipv4(32, "10.0.0.0/16")}, 1024},
		"of one, in IPv6":   {v1alpha1.PodIPPoolSpec{IPv6: &v1alpha1.IPv6Ranges{BlockSize: 128, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/120"}}}}, 1024},
		"the pool says two": {v1alpha1.PodIPPoolSpec{IPv4: ipv4(32, "10.0.0.0/16"), Expand: v1alpha1.Expand{MaxBlocksPerNode: ptr[int32](2)}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := crd.PoolFrom(object("p", tt.spec), d)
			if err != nil || p.Policy.MaxBlocks != tt.want {
				t.Errorf("a node holds %d blocks, want %d (%v)", p.Policy.MaxBlocks, tt.want, err)
			}
		})
	}
}

// In multi-pool mode only the cooldown keeps a returned block from other nodes while its agent
// may take it again.
func TestCooldownOfReturnedBlocks(t *testing.T) {
	for _, test := range []struct {
		asked v1alpha1.Duration
		many  bool
		want  time.Duration
		wrong bool
	}{
		{"0s", false, 0, false}, {"0s", true, crd.MinMultiPoolCooldown, true}, {"30s", true, crd.MinMultiPoolCooldown, false},
	} {
		d := defaults()
		d.CiliumPools = test.many
		p, err := crd.PoolFrom(object("p", v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/16"), Cooldown: &test.asked}), d)
		if err != nil || p.Cooldown != test.want || (p.PolicyProblem != nil) != test.wrong {
			t.Errorf("%+v: cooldown %s, %v, %v", test, p.Cooldown, p.PolicyProblem, err)
		}
	}
}

func TestWrongCooldownDoesNotStopAPool(t *testing.T) {
	spec := v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/16"), Cooldown: ptr[v1alpha1.Duration]("25h")}
	p := pool(t, spec)
	checkProblems(t, p.PolicyProblem, []string{`spec.cooldown: Invalid value: "25h": must be from 0s to 24h. Until then the operator uses its default, 1m0s`})
	if p.Cooldown != time.Minute || p.NodeGoneCooldown != 10*time.Minute {
		t.Errorf("cooldowns are %v and %v, want the defaults", p.Cooldown, p.NodeGoneCooldown)
	}
}

// The policy that a pool's status shows is a spec with the same effect, whatever the defaults.
func TestEffectivePolicyIsASpec(t *testing.T) {
	night := v1alpha1.MaintenanceWindow{Schedule: "0 22 * * mon-fri", Duration: "6h", TimeZone: "Asia/Shanghai"}
	parse := func(obj *v1alpha1.PodIPPool, d crd.Defaults) *crd.Pool {
		pool, err := crd.PoolFrom(obj, d)
		if err != nil {
			t.Fatal(err)
		}
		return pool
	}
	for name, edit := range map[string]func(*v1alpha1.PodIPPoolSpec, *crd.Defaults){
		"defaults": func(*v1alpha1.PodIPPoolSpec, *crd.Defaults) {},
		"a spec with all values": func(s *v1alpha1.PodIPPoolSpec, _ *crd.Defaults) {
			s.Expand = v1alpha1.Expand{ThresholdPercent: ptr[int32](60), MinFreeAddresses: ptr[int32](0), MaxBlocksPerNode: ptr[int32](3)}
			s.Reclaim = v1alpha1.Reclaim{ThresholdPercent: ptr[int32](0), IdleFor: new(v1alpha1.Duration("90s")), PressurePercent: new(intstr.FromString("Never")), Policy: v1alpha1.ReclaimNever}
			s.Maintenance = v1alpha1.Maintenance{Windows: []v1alpha1.MaintenanceWindow{night, {Schedule: "@daily", Duration: "30m"}}, BlocksPerHour: new(intstr.FromInt32(7))}
			s.UnselectedNodes = v1alpha1.UnselectedNodes{Policy: v1alpha1.UnselectedNodesDrain, MaxConcurrent: ptr[int32](5)}
			s.Cooldown = new(v1alpha1.Duration("0s"))
		},
		"flags": func(_ *v1alpha1.PodIPPoolSpec, d *crd.Defaults) {
			d.Policy.ReclaimDisabled, d.Maintenance.BlocksPerHour = true, 9
			d.Maintenance.Windows, _ = crd.WindowsFrom([]v1alpha1.MaintenanceWindow{night}, nil)
		},
		"a schedule without a limit, though the flags set none": func(s *v1alpha1.PodIPPoolSpec, _ *crd.Defaults) {
			s.Maintenance.Policy = v1alpha1.MaintenanceScheduled
		},
		"against the flags": func(s *v1alpha1.PodIPPoolSpec, d *crd.Defaults) {
			d.Policy.ReclaimDisabled, d.Maintenance.BlocksPerHour = true, 9
			s.Reclaim.Policy, s.Maintenance.Policy = v1alpha1.ReclaimWhenIdle, v1alpha1.MaintenanceUnrestricted
		},
		"without limits against the flags": func(s *v1alpha1.PodIPPoolSpec, d *crd.Defaults) {
			d.Policy.PressurePercent, d.Maintenance.BlocksPerHour = 70, 9
			s.Reclaim.PressurePolicy, s.Maintenance.RatePolicy = v1alpha1.PressureNever, v1alpha1.RateUnlimited
		},
		"thresholds that contradict each other": func(s *v1alpha1.PodIPPoolSpec, _ *crd.Defaults) {
			s.Expand.ThresholdPercent, s.Reclaim.ThresholdPercent = ptr[int32](40), ptr[int32](60)
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj, defaults := fixtures.PodIPPool("p", 1, "10.0.0.0/24"), fixtures.Defaults()
			edit(&obj.Spec, &defaults)
			is := parse(obj, defaults).Effective()
			if set := obj.Spec.Maintenance.Policy; is.Maintenance.Policy != set && (set != "" || is.Maintenance.Policy != v1alpha1.MaintenanceScheduled) {
				t.Errorf("the policy of maintenance is %s, and was set to %q", is.Maintenance.Policy, set)
			}
			again := fixtures.PodIPPool("p", 1, "10.0.0.0/24")
			again.Spec.Expand, again.Spec.Reclaim, again.Spec.Maintenance, again.Spec.UnselectedNodes, again.Spec.Cooldown = is.Expand, is.Reclaim, is.Maintenance, is.UnselectedNodes, &is.Cooldown
			pool := parse(again, fixtures.Defaults())
			if diff := cmp.Diff(is, pool.Effective()); diff != "" || pool.PolicyProblem != nil || pool.Maintenance.Problem != nil {
				t.Errorf("%v, %v, as a spec (-is +again):\n%s", pool.PolicyProblem, pool.Maintenance.Problem, diff)
			}
		})
	}
}
