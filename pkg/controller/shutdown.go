package controller

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// untilShutdown makes a reconciler do nothing during shutdown, and drops the errors
// that the shutdown causes. A queue that shuts down still hands out its items, and the
// controller would log a canceled context for each. The next leader reconciles
// everything.
type untilShutdown struct{ reconcile.Reconciler }

func (u untilShutdown) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if ctx.Err() != nil {
		return reconcile.Result{}, nil //nolint:nilerr // a shutdown is not a failure
	}
	result, err := u.Reconciler.Reconcile(ctx, req)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return reconcile.Result{}, nil
	}
	return result, err
}
