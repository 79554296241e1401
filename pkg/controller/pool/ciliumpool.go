package pool

import (
	"cmp"
	"fmt"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Reasons of a pool's condition CiliumPodIPPoolReady, beside ReasonInvalid and ReasonNotApplicable.
const (
	ReasonKept        = "Kept"
	ReasonHandMade    = "HandMade"
	ReasonMissing     = "Missing"
	ReasonOtherSize   = "OtherSize"
	ReasonOtherFamily = "OtherFamily"
)

// ciliumPoolIs reports whether, in multi-pool mode, a CiliumPodIPPool exists that fits
// the pool.
func (r *Reconciler) ciliumPoolIs(pool *crd.Pool) *condition {
	switch {
	case unreadable(pool):
		return noSpec()
	case !pool.ManyCiliumPools():
		return isTrue(ReasonNotApplicable, "agents have no CiliumPodIPPools in this mode")
	}
	name := cmp.Or(pool.CiliumPool, crd.DefaultCiliumPool)
	is := r.CiliumPools.Get(name)
	if is == nil {
		return isFalse(ReasonMissing, "there is no CiliumPodIPPool "+name+": agents assign no address of the pool")
	}
	for _, f := range ipalloc.Families() {
		if _, serves := pool.Ranges(f); serves && is.MaskSize[f] == 0 {
			return isFalse(ReasonOtherFamily, fmt.Sprintf("CiliumPodIPPool %s has no %s ranges: its selectors pick no pod for that family, and agents that announce it by BGP may crash. Give it some", name, f))
		}
	}
	for _, f := range ipalloc.Families() {
		ranges, serves := pool.Ranges(f)
		if serves && is.MaskSize[f] != ranges.Bits {
			return isFalse(ReasonOtherSize, fmt.Sprintf("CiliumPodIPPool %s has maskSize %d for %s, and blocks here are /%d: Cilium's BGP control plane announces none of them. Without it that is no harm", name, is.MaskSize[f], f, ranges.Bits))
		}
	}
	if !is.Ours {
		return isTrue(ReasonHandMade, "CiliumPodIPPool "+name+" does not belong to the operator, which leaves it unchanged")
	}
	return isTrue(ReasonKept, "CiliumPodIPPool "+name+" is labeled as the operator's")
}

// isUnfit reports whether a reason matters to Cilium's BGP control plane.
func isUnfit(reason string) bool { return reason == ReasonOtherSize || reason == ReasonOtherFamily }
