package controller

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// Interruptions by the end of the process are no errors of any controller: with a full queue the
// log would have a line for each object in it.
func TestShutdownIsNoError(t *testing.T) {
	scheme, err := apiclient.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	calls := 0
	api := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			calls++
			stop()
			return fmt.Errorf("Get %q: %w", key.Name, ctx.Err())
		},
	}).Build()
	o, err := New(Environment{Cache: api, Live: api, Client: api, Recorder: events.NewFakeRecorder(10), Clock: clocktesting.NewFakePassiveClock(fixtures.Noon())},
		config.Settings{Mode: ciliumnode.MultiPool, Defaults: fixtures.Defaults(), Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	o.Feed.Ledger.SetReady()
	workers := controllersOf(o, config.Settings{Mode: ciliumnode.MultiPool, NodeWorkers: 1})
	if len(workers) != 7 {
		t.Fatalf("%d controllers", len(workers))
	}
	for range 20 { // a wait for two things at once picks one at random
		for _, w := range workers {
			if result, err := w.reconciler.Reconcile(ctx, fakeapi.RequestOf("n")); err != nil || result != (reconcile.Result{}) {
				t.Errorf("controller %s: %v, %v", w.name, result, err)
			}
		}
	}
	if calls != 1 {
		t.Errorf("%d calls, want the one that the end interrupts", calls)
	}
}

// Any other error is returned, also at the end.
func TestShutdownHidesNoOtherError(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		ends bool
		want bool
	}{
		"an error while it runs":        {fakeapi.ErrLine, false, true},
		"a call canceled while it runs": {context.Canceled, false, true},
		"an error as the process ends":  {fakeapi.ErrLine, true, true},
		"a call canceled as it ends":    {fmt.Errorf("get: %w", context.Canceled), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			r := untilShutdown{reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				if test.ends {
					stop()
				}
				return reconcile.Result{}, test.err
			})}
			if _, err := r.Reconcile(ctx, fakeapi.RequestOf("n")); (err != nil) != test.want {
				t.Errorf("the controller is given %v", err)
			}
		})
	}
}
