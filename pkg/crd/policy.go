package crd

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// Upper bounds, as in the API.
const (
	maxCooldown = 24 * time.Hour
	maxIdleFor  = 7 * 24 * time.Hour

	// DefaultReleaseAfter, the default, is longer than a weekend.
	DefaultReleaseAfter = 7 * 24 * time.Hour
	maxReleaseAfter     = 365 * 24 * time.Hour

	maxUnselected = 100_000
)

// MinMultiPoolCooldown is the shortest cooldown in multi-pool mode, and in delegated-plugin mode, which does not need it. An agent may assign an address
// of a block that it has just returned if its watch lags by more than 15 s
// (releaseExcessCIDRsMultiPool, Cilium v1.20.1); only the cooldown keeps the block from
// other nodes until then.
const MinMultiPoolCooldown = 30 * time.Second

// setCooldown merges the spec's cooldown with the default one.
func setCooldown(target *time.Duration, value *v1alpha1.Duration, d Defaults, path *field.Path) field.ErrorList {
	problems := setDuration(target, value, maxCooldown, path)
	if value == nil || !d.CiliumPools || *target >= MinMultiPoolCooldown {
		return problems
	}
	*target = MinMultiPoolCooldown
	return append(problems, field.Invalid(path, *value, fmt.Sprintf(
		"must be %[1]s or more where pods choose pools: in multi-pool mode an agent may still take an address of a block that it has just returned. Until then the operator uses %[1]s", MinMultiPoolCooldown)))
}

// parsePolicy merges the spec with the defaults.
//
// The policy it returns is always valid for Decide: the default replaces a value out of
// bounds, and where the spec and the operator's flags contradict each other, the
// nearest consistent value applies. It depends on the objects and the flags alone, so
// it is the same after a restart.
func parsePolicy(spec *v1alpha1.PodIPPoolSpec, defaults expand.Policy, path *field.Path) (expand.Policy, field.ErrorList) {
	p := defaults
	e := spec.Expand
	r := spec.Reclaim
	if HasSingleAddresses(spec) {
		p.MaxBlocks = maxBlocksPerNode // the default would cap the pods of a node at 16
	}

	expandPath := path.Child("expand")
	reclaimPath := path.Child("reclaim")
	var problems field.ErrorList
	if r.Policy != "" {
		p.ReclaimDisabled = r.Policy != v1alpha1.ReclaimWhenIdle
	}
	for _, errs := range []field.ErrorList{
		setInt(&p.ExpandPercent, e.ThresholdPercent, 1, 100, expandPath.Child("thresholdPercent")),
		setInt(&p.MinFree, e.MinFreeAddresses, 0, 4096, expandPath.Child("minFreeAddresses")),
		setInt(&p.MaxBlocks, e.MaxBlocksPerNode, 1, maxBlocksPerNode, expandPath.Child("maxBlocksPerNode")),
		setInt(&p.ReclaimPercent, r.ThresholdPercent, 0, 99, reclaimPath.Child("thresholdPercent")),
		setLimit(&p.PressurePercent, r.PressurePercent, v1alpha1.Never, 100, reclaimPath.Child("pressurePercent")),
		setDuration(&p.IdleFor, r.IdleFor, maxIdleFor, reclaimPath.Child("idleFor")),
	} {
		problems = append(problems, errs...)
	}
	if r.PressurePolicy != "" && r.PressurePolicy != v1alpha1.PressureShortens {
		p.PressurePercent = 0
	}
	if !p.ReclaimDisabled && p.ReclaimPercent >= p.ExpandPercent {
		problems = append(problems, fitThresholds(&p, defaults, e.ThresholdPercent != nil, r.ThresholdPercent != nil, reclaimPath.Child("thresholdPercent"))...)
	}
	if most := p.MaxAddresses - 1; p.MinFree > most {
		problems = append(problems, field.Invalid(expandPath.Child("minFreeAddresses"), p.MinFree,
			fmt.Sprintf("must be below --max-addresses-per-node, which is %d: lower it or raise the flag. Until then the operator uses %d", p.MaxAddresses, most)))
		p.MinFree = most
	}
	return p, problems
}

// maxBlocksPerNode is the largest expand.maxBlocksPerNode.
const maxBlocksPerNode = 1024

// HasSingleAddresses reports whether the blocks of a family are single addresses.
func HasSingleAddresses(spec *v1alpha1.PodIPPoolSpec) bool {
	return spec.IPv4 != nil && spec.IPv4.BlockSize == 32 || spec.IPv6 != nil && spec.IPv6.BlockSize == 128
}

// Effective returns the policy of the pool as its status shows it.
func (p *Pool) Effective() *v1alpha1.EffectivePolicy {
	number := func(n int) *int32 { return new(int32(n)) } // all within the API's bounds
	policy := &v1alpha1.EffectivePolicy{
		Expand: v1alpha1.Expand{
			ThresholdPercent: number(p.Policy.ExpandPercent), MinFreeAddresses: number(p.Policy.MinFree), MaxBlocksPerNode: number(p.Policy.MaxBlocks),
		},
		Reclaim: v1alpha1.Reclaim{
			Policy: v1alpha1.ReclaimPolicyOf(p.Policy.ReclaimDisabled), ThresholdPercent: number(p.Policy.ReclaimPercent),
			IdleFor: new(v1alpha1.NewDuration(p.Policy.IdleFor)), PressurePercent: limit(p.Policy.PressurePercent), PressurePolicy: v1alpha1.PressureShortens,
		},
		Maintenance:     v1alpha1.Maintenance{Policy: v1alpha1.MaintenanceScheduled, BlocksPerHour: limit(p.Maintenance.BlocksPerHour), RatePolicy: v1alpha1.RateLimited},
		UnselectedNodes: v1alpha1.UnselectedNodes{Policy: v1alpha1.UnselectedNodesRetain, MaxConcurrent: number(p.MaxUnselected)},
		Cooldown:        v1alpha1.NewDuration(p.Cooldown),
	}
	if p.Policy.PressurePercent == 0 {
		policy.Reclaim.PressurePolicy = v1alpha1.PressureNever
	}
	if p.Maintenance.BlocksPerHour == 0 {
		policy.Maintenance.RatePolicy = v1alpha1.RateUnlimited
	}
	if p.DrainUnselected {
		policy.UnselectedNodes.Policy = v1alpha1.UnselectedNodesDrain
	}
	if p.Maintenance.Unrestricted {
		policy.Maintenance.Policy = v1alpha1.MaintenanceUnrestricted
	}
	for _, w := range p.Maintenance.Windows.Windows() {
		policy.Maintenance.Windows = append(policy.Maintenance.Windows, v1alpha1.MaintenanceWindow{
			Schedule: w.Schedule, Duration: v1alpha1.NewDuration(w.Duration), TimeZone: w.Zone,
		})
	}
	return policy
}

// fitThresholds makes reclaim the lower threshold. A pool that sets one of them is valid for any
// flag of the other one: the other threshold keeps the distance between the flags.
func fitThresholds(p *expand.Policy, defaults expand.Policy, expandSet, reclaimSet bool, path *field.Path) field.ErrorList {
	distance := max(1, defaults.ExpandPercent-defaults.ReclaimPercent)
	if expandSet && !reclaimSet {
		p.ReclaimPercent = max(0, p.ExpandPercent-distance)
		return nil
	}
	if reclaimSet && !expandSet {
		p.ExpandPercent = min(100, p.ReclaimPercent+distance)
		return nil
	}
	wrong := p.ReclaimPercent
	p.ReclaimPercent = p.ExpandPercent - 1
	return field.ErrorList{field.Invalid(path, wrong,
		fmt.Sprintf("must be below expand.thresholdPercent, which is %d, or nodes give blocks back only to ask for them again: set both, with reclaim the lower. Until then the operator uses %d",
			p.ExpandPercent, p.ReclaimPercent))}
}

func setInt(target *int, value *int32, lowest, highest int32, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	if *value < lowest || *value > highest {
		return field.ErrorList{field.Invalid(path, *value, fmt.Sprintf("must be from %d to %d. Until then the operator uses its default, %d", lowest, highest, *target))}
	}
	*target = int(*value)
	return nil
}

// setLimit sets a number from 1 to highest, or 0 for the word.
func setLimit(target *int, value *intstr.IntOrString, word string, highest int32, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	if *value == intstr.FromString(word) {
		*target = 0
		return nil
	}
	if value.Type != intstr.Int || value.IntVal < 1 || value.IntVal > highest {
		return field.ErrorList{field.Invalid(path, value.String(), fmt.Sprintf("must be from 1 to %d, or %s. Until then the operator uses its default, %s", highest, word, cmp.Or(limit(*target), new(intstr.FromString(word)))))}
	}
	*target = value.IntValue()
	return nil
}

// limit is the reverse of setLimit; nil for no limit, which a policy says.
func limit(n int) *intstr.IntOrString {
	if n == 0 {
		return nil
	}
	return new(intstr.FromInt32(int32(n))) // within the API's bounds
}

func setDuration(target *time.Duration, value *v1alpha1.Duration, highest time.Duration, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	d, err := value.Parse()
	if err != nil {
		return field.ErrorList{field.Invalid(path, *value, fmt.Sprintf("%s. Until then the operator uses its default, %s", err, *target))}
	}
	if d > highest {
		return field.ErrorList{field.Invalid(path, *value, fmt.Sprintf("must be from 0s to %s. Until then the operator uses its default, %s", v1alpha1.NewDuration(highest), *target))}
	}
	*target = d
	return nil
}
