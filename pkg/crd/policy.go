package crd

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// Upper bounds, as in the API.
const (
	maxCooldown = 24 * time.Hour
	maxIdleFor  = 7 * 24 * time.Hour
)

// parsePolicy puts what the spec says over the defaults. A pool can switch
// reclaim off, but not on where the defaults have it off.
func parsePolicy(spec *v1alpha1.PodIPPoolSpec, defaults expand.Policy, path *field.Path) (expand.Policy, field.ErrorList) {
	p, e, r := defaults, spec.Expand, spec.Reclaim
	p.ReclaimDisabled = p.ReclaimDisabled || r.Disabled

	expandPath, reclaimPath := path.Child("expand"), path.Child("reclaim")
	var problems field.ErrorList
	for _, errs := range []field.ErrorList{
		setInt(&p.ExpandPercent, e.ThresholdPercent, 1, 100, expandPath.Child("thresholdPercent")),
		setInt(&p.MinFree, e.MinFree, 0, 4096, expandPath.Child("minFree")),
		setInt(&p.MaxBlocks, e.MaxBlocksPerNode, 1, 1024, expandPath.Child("maxBlocksPerNode")),
		setInt(&p.ReclaimPercent, r.ThresholdPercent, 0, 99, reclaimPath.Child("thresholdPercent")),
		setInt(&p.PressurePercent, r.PressurePercent, 0, 100, reclaimPath.Child("pressurePercent")),
		setDuration(&p.IdleFor, r.IdleFor, maxIdleFor, reclaimPath.Child("idleFor")),
	} {
		problems = append(problems, errs...)
	}
	if len(problems) > 0 {
		return expand.Policy{}, problems
	}
	if !p.ReclaimDisabled && p.ReclaimPercent >= p.ExpandPercent {
		return expand.Policy{}, field.ErrorList{field.Invalid(reclaimPath.Child("thresholdPercent"), p.ReclaimPercent,
			fmt.Sprintf("must be below expand.thresholdPercent, which is %d%s, or nodes give blocks back only to ask for them again: set both, with reclaim the lower",
				p.ExpandPercent, fromDefaults(e.ThresholdPercent, r.ThresholdPercent)))}
	}
	// What is wrong now, the defaults have a part in.
	if err := p.Validate(); err != nil {
		return expand.Policy{}, field.ErrorList{field.Invalid(expandPath, "with the operator's defaults", strings.ReplaceAll(err.Error(), "\n", "; "))}
	}
	return p, nil
}

// fromDefaults says which of the two thresholds the spec leaves out.
func fromDefaults(expand, reclaim *int32) string {
	switch {
	case expand == nil && reclaim == nil:
		return " (both are the operator's defaults)"
	case expand == nil:
		return " (the operator's default)"
	case reclaim == nil:
		return " (reclaim's is the operator's default)"
	}
	return ""
}

func setInt(to *int, from *int32, lowest, highest int32, path *field.Path) field.ErrorList {
	if from == nil {
		return nil
	}
	if *from < lowest || *from > highest {
		return field.ErrorList{field.Invalid(path, *from, fmt.Sprintf("must be from %d to %d", lowest, highest))}
	}
	*to = int(*from)
	return nil
}

func setDuration(to *time.Duration, from *v1alpha1.Duration, highest time.Duration, path *field.Path) field.ErrorList {
	if from == nil {
		return nil
	}
	d, err := from.Parse()
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, *from, err.Error())}
	case d > highest:
		return field.ErrorList{field.Invalid(path, *from, fmt.Sprintf("must be from 0s to %s", v1alpha1.NewDuration(highest)))}
	}
	*to = d
	return nil
}
