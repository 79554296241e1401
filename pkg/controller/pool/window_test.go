package pool

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestWindowCondition(t *testing.T) {
	bad := fixtures.Nightly()
	bad.Windows[0].TimeZone = "Asia/Peking"
	tests := map[string]struct {
		policy  v1alpha1.Maintenance
		at      time.Duration // after noon
		status  metav1.ConditionStatus
		reason  string
		message string
		again   time.Duration
	}{
		"no windows": {status: metav1.ConditionTrue, reason: ReasonNotApplicable, message: "at any time"},
		"closed":     {fixtures.Nightly(), 0, metav1.ConditionFalse, ReasonWindowClosed, "opens at 2026-01-01T22:00:00Z", 10 * time.Hour},
		"open":       {fixtures.Nightly(), 10*time.Hour + time.Minute, metav1.ConditionTrue, ReasonWindowOpen, "a window is open", 59 * time.Minute},
		"unknown":    {v1alpha1.Maintenance{Policy: "Frozen"}, 0, metav1.ConditionFalse, ReasonInvalid, `spec.maintenance.policy: Invalid value: "Frozen"`, 0},
		"bad":        {bad, 0, metav1.ConditionFalse, ReasonInvalid, `"Asia/Peking" is not in the tz database`, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			obj, now := fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Noon().Add(test.at)
			obj.Spec.Maintenance = test.policy
			obj.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolWindow, Reason: "Old", Status: metav1.ConditionUnknown}}
			pool := fixtures.PoolOf(t, obj)
			setCondition(obj, v1alpha1.PoolWindow, windowCondition(pool, now), now)
			c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolWindow)
			if c.Status != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.message) {
				t.Errorf("got %+v", c)
			}
			if got := untilWindow(pool, now); got != test.again {
				t.Errorf("looks again in %s, want %s", got, test.again)
			}
		})
	}
}
