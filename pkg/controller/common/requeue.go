package common

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// ConflictRetry is when to reconcile again after a write conflict.
	ConflictRetry = 100 * time.Millisecond
	// WatchRetry is when to reconcile again while the watch lags behind a write.
	WatchRetry = time.Second
)

// MaxBackoff is the longest wait after an error of a reconcile.
const MaxBackoff = 30 * time.Second

// LongestWait is the longest wait before a controller tries something again without an event.
const LongestWait = time.Minute

// AfterConflict requeues after a conflict without reporting an error.
func AfterConflict(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: ConflictRetry}, nil
	}
	return reconcile.Result{}, err
}

// Sooner is the shorter of two waits, where 0 means none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
