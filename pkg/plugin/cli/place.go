package cli

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/clusterread"
)

// Place is where commands run that do not find their cluster by a kubeconfig: a simulated cluster
// with its own time. All requests of migrate, drain and renumber go through it; commands that
// follow a cluster with watches do not use it.
type Place struct {
	// Client reads and writes.
	Client client.Client
	// Now returns the time there.
	Now func() time.Time
	// Sleep lets time pass. An error ends the command.
	Sleep func(context.Context, time.Duration) error
}

// TimeNow returns the time at the cluster's place.
func (e *Env) TimeNow() time.Time {
	if e.Place != nil {
		return e.Place.Now()
	}
	return time.Now()
}

// Sleep lets time pass, and returns the context's error if that ends before.
func (e *Env) Sleep(ctx context.Context, d time.Duration) error {
	if e.Place != nil {
		return e.Place.Sleep(ctx, d)
	}
	return clusterread.Sleep(ctx, d)
}
