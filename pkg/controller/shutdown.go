package controller

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// untilShutdown lets a reconciler do nothing once the process is to end, and says
// nothing of what its end interrupts. A queue that shuts down hands out what it
// still holds, and for each the controller would log that the context is canceled.
// The next leader looks at everything anew.
type untilShutdown struct{ reconcile.Reconciler }

func (u untilShutdown) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if ctx.Err() != nil {
		return reconcile.Result{}, nil //nolint:nilerr // a shutdown is no failure
	}
	result, err := u.Reconciler.Reconcile(ctx, req)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return reconcile.Result{}, nil
	}
	return result, err
}
