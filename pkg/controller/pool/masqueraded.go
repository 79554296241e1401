package pool

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// ReasonOutsideNative says that a range of the pool lies outside Cilium's native-routing CIDR.
const ReasonOutsideNative = "OutsideNativeRouting"

// setMasqueraded reports the ranges of a pool that agents masquerade. A pool without such a
// range has no such condition.
func setMasqueraded(obj *v1alpha1.PodIPPool, pool *crd.Pool, cilium *ciliumconfig.Config, now time.Time) {
	var masqueraded []ciliumconfig.Masqueraded
	if pool != nil {
		masqueraded = cilium.Masqueraded(pool)
	}
	if len(masqueraded) == 0 {
		meta.RemoveStatusCondition(&obj.Status.Conditions, v1alpha1.PoolMasqueraded)
		return
	}
	status, reason, message := masqueradedIs(masqueraded)
	meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PoolMasqueraded, Status: status, Reason: reason, Message: message,
		ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

func masqueradedIs(masqueraded []ciliumconfig.Masqueraded) (status metav1.ConditionStatus, reason, message string) {
	var parts []string
	for _, m := range masqueraded {
		parts = append(parts, m.String())
	}
	return metav1.ConditionTrue, ReasonOutsideNative, strings.Join(parts, "; ") + ". " + ciliumconfig.MasqueradedFix
}
