package pool

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Reasons of a pool's condition CiliumPodIPPool.
const (
	ReasonKept        = "Kept"
	ReasonHandMade    = "HandMade"
	ReasonMissing     = "Missing"
	ReasonOtherSize   = "OtherSize"
	ReasonOtherFamily = "OtherFamily"
)

// setCiliumPool reports whether, in multi-pool mode, a CiliumPodIPPool exists that fits
// the pool.
func (r *Reconciler) setCiliumPool(obj *v1alpha1.PodIPPool, pool *crd.Pool, now time.Time) {
	if r.CiliumPools == nil || !r.CiliumPools.Known() || pool == nil || pool.Frozen() {
		meta.RemoveStatusCondition(&obj.Status.Conditions, v1alpha1.PoolCiliumPool)
		return
	}
	status, reason, message := ciliumPoolIs(pool, r.CiliumPools.Get(pool.CiliumPool))
	meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PoolCiliumPool, Status: status, Reason: reason, Message: message,
		ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

// ciliumPoolIs compares a pool with its CiliumPodIPPool, which may be nil.
func ciliumPoolIs(pool *crd.Pool, is *ciliumpool.View) (status metav1.ConditionStatus, reason, message string) {
	name := cmp.Or(pool.CiliumPool, crd.DefaultCiliumPool)
	if is == nil {
		return metav1.ConditionFalse, ReasonMissing, "there is no CiliumPodIPPool " + name + ": agents assign no address of the pool"
	}
	for _, f := range ipalloc.Families() {
		if _, serves := pool.Ranges(f); serves && is.MaskSize[f] == 0 {
			return metav1.ConditionFalse, ReasonOtherFamily, fmt.Sprintf("CiliumPodIPPool %s has no %s ranges: its selectors pick no pod for that family, and agents that announce it by BGP may crash. Give it some", name, f)
		}
	}
	for _, f := range ipalloc.Families() {
		ranges, serves := pool.Ranges(f)
		if serves && is.MaskSize[f] != ranges.Bits {
			return metav1.ConditionFalse, ReasonOtherSize, fmt.Sprintf("CiliumPodIPPool %s has maskSize %d for %s, and blocks here are /%d: Cilium's BGP control plane announces none of them. Without it that is no harm", name, is.MaskSize[f], f, ranges.Bits)
		}
	}
	if !is.Ours {
		return metav1.ConditionTrue, ReasonHandMade, "CiliumPodIPPool " + name + " does not belong to the operator, which leaves it unchanged"
	}
	return metav1.ConditionTrue, ReasonKept, "CiliumPodIPPool " + name + " is labeled as the operator's"
}

// isUnfit reports whether a reason matters to Cilium's BGP control plane.
func isUnfit(reason string) bool { return reason == ReasonOtherSize || reason == ReasonOtherFamily }
