package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// maxCIDRs is the maximum of a family in a PodIPPool.
const maxCIDRs = 128

// Check drops pools that the API or the operator would reject, and remarks on ranges that two
// pools contain. existing are the pools of the cluster.
func (r *Result) Check(defaults crd.Defaults, existing []v1alpha1.PodIPPool) {
	// Ours would be newer than existing pools, and an older pool wins.
	var now time.Time
	for i := range existing {
		if created := existing[i].CreationTimestamp.Time; created.After(now) {
			now = created
		}
	}
	now = now.Add(time.Second)
	var valid []*crd.Pool
	r.Pools = slices.DeleteFunc(r.Pools, func(p Pool) bool {
		pool, err := crd.PoolFrom(&p.Object, defaults)
		if err == nil {
			err = cmp.Or(pool.PolicyProblem, checkLimits(&p.Object.Spec))
		}
		if err != nil {
			r.lostOfPool(p, "spec", "no PodIPPool can be like that, so it is left out: "+err.Error(), "Write the pool yourself")
			return true
		}
		pool.Created = now
		valid = append(valid, pool)
		return false
	})
	for i := range existing {
		e := &existing[i]
		if index := slices.IndexFunc(r.Pools, func(p Pool) bool { return p.Object.Name == e.Name }); index >= 0 {
			if !equality.Semantic.DeepEqual(defaulted(r.Pools[index].Object.Spec), defaulted(e.Spec)) {
				r.lostOfPool(r.Pools[index], "metadata.name", "the cluster has a PodIPPool of this name that says otherwise: to apply this one would change it", "Compare them: kubectl cilium-pool plan")
			}
			continue
		}
		if pool, err := crd.PoolFrom(e, defaults); err == nil {
			valid = append(valid, pool)
		}
	}
	r.overlaps(valid)
}

// defaulted returns a spec as the API server stores it.
func defaulted(spec v1alpha1.PodIPPoolSpec) v1alpha1.PodIPPoolSpec {
	s := *spec.DeepCopy()
	s.ReservedBlockPolicy = cmp.Or(s.ReservedBlockPolicy, v1alpha1.SkipReservedBlocks)
	for _, r := range crd.RangesIn(&s) {
		for i := range *r.CIDRs {
			c := &(*r.CIDRs)[i]
			c.AllocationPolicy = cmp.Or(c.AllocationPolicy, v1alpha1.AllocationAllocate)
		}
	}
	return s
}

// checkLimits checks the limits that only the API enforces.
func checkLimits(s *v1alpha1.PodIPPoolSpec) error {
	if n := len(s.Reserved); n > maxReserved {
		return fmt.Errorf("it reserves %d separate ranges, and a PodIPPool takes %d", n, maxReserved)
	}
	for _, r := range crd.RangesIn(s) {
		if n := len(*r.CIDRs); n > maxCIDRs {
			return fmt.Errorf("it has %d CIDRs of a family, and a PodIPPool takes %d", n, maxCIDRs)
		}
	}
	return nil
}

// overlaps remarks on ranges of ours that another pool would keep, and on ranges of existing
// pools that ours would take.
func (r *Result) overlaps(pools []*crd.Pool) {
	for _, p := range crd.ResolveOverlaps(pools) {
		for _, c := range p.AllRanges() {
			if c.YieldsTo != "" {
				r.overlap(p.Name, c)
			}
		}
	}
}

func (r *Result) overlap(loser string, c crd.Range) {
	for _, p := range r.Pools {
		if p.Object.Name == loser || p.Object.Name == c.YieldsTo && !r.named(loser) {
			r.lostOfPool(p, "spec: "+c.CIDR.String(),
				fmt.Sprintf("pools %s and %s claim the same addresses, and only %s would give them out", c.YieldsTo, loser, c.YieldsTo),
				"Take the range out of one of them before you apply")
		}
	}
}

// lostOfPool remarks on a loss of a created pool, naming its source.
func (r *Result) lostOfPool(p Pool, field, reason, fix string) {
	r.Remarks = append(r.Remarks, Remark{
		Lost: true, Object: "PodIPPool " + p.Object.Name, Source: "from " + p.From, Field: field,
		Reason: strings.TrimSuffix(reason, "."), Fix: fix, Pool: p.Object.Name,
	})
}
