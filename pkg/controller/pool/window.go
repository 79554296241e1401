package pool

import (
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// Reasons of a pool's condition MaintenanceWindowOpen, beside ReasonInvalid.
const (
	ReasonWindowOpen   = "Open"
	ReasonWindowClosed = "Closed"
)

// windowIs reports whether a maintenance window of the pool is open.
func windowIs(pool *crd.Pool, now time.Time) *condition {
	if pool == nil {
		return noSpec()
	}
	m := &pool.Maintenance
	switch {
	case m.Windows == nil:
		return isTrue(ReasonNotApplicable, "no window is set: blocks may begin to leave their nodes at any time")
	case m.Problem != nil:
		return isFalse(ReasonInvalid, strings.ReplaceAll(m.Problem.Error(), "\n", "; ")+
			". No block begins to leave its node until this is fixed; nodes get blocks all the same")
	}
	is := m.Windows.At(now)
	until := is.Until.UTC().Format(time.RFC3339)
	switch {
	case is.Open:
		return isTrue(ReasonWindowOpen, "blocks may begin to leave their nodes until "+until)
	case is.Until.IsZero():
		return isFalse(ReasonWindowClosed, "no window opens in the next years: no block begins to leave its node")
	}
	return isFalse(ReasonWindowClosed, "no block begins to leave its node until the next window opens at "+until)
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
