package pool

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Reasons of a pool's condition MaintenanceWindow, beside ReasonInvalid.
const (
	ReasonWindowOpen   = "Open"
	ReasonWindowClosed = "Closed"
)

// setWindow reports whether a maintenance window of the pool is open, if it has any.
func setWindow(obj *v1alpha1.PodIPPool, pool *crd.Pool, now time.Time) {
	if pool == nil || pool.Maintenance.Windows == nil {
		meta.RemoveStatusCondition(&obj.Status.Conditions, v1alpha1.PoolWindow)
		return
	}
	status, reason, message := windowIs(&pool.Maintenance, now)
	meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PoolWindow, Status: status, Reason: reason, Message: message,
		ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

func windowIs(m *crd.Maintenance, now time.Time) (status metav1.ConditionStatus, reason, message string) {
	if m.Problem != nil {
		return metav1.ConditionFalse, ReasonInvalid, strings.ReplaceAll(m.Problem.Error(), "\n", "; ") +
			". No block begins to leave its node until this is fixed; nodes get blocks all the same"
	}
	is := m.Windows.At(now)
	until := is.Until.UTC().Format(time.RFC3339)
	switch {
	case is.Open:
		return metav1.ConditionTrue, ReasonWindowOpen, "blocks may begin to leave their nodes until " + until
	case is.Until.IsZero():
		return metav1.ConditionFalse, ReasonWindowClosed, "no window opens in the next years: no block begins to leave its node"
	}
	return metav1.ConditionFalse, ReasonWindowClosed, "no block begins to leave its node until the next window opens at " + until
}

// untilWindow is the time until a window of the pool opens or closes; 0: unknown.
func untilWindow(pool *crd.Pool, now time.Time) time.Duration {
	if pool == nil {
		return 0
	}
	if is := pool.Maintenance.Windows.At(now); !is.Until.IsZero() {
		return max(is.Until.Sub(now), time.Millisecond)
	}
	return 0
}
