package pool

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
)

// bed is a pool controller on a fake API server.
type bed struct {
	*fakeapi.Cluster
	r *Reconciler
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	t.Helper()
	return newBedIn(t, ciliumnode.CRD, objects...)
}

func newBedIn(t *testing.T, mode ciliumnode.Mode, objects ...client.Object) *bed {
	t.Helper()
	own, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	c := fakeapi.New(t, mode, objects...)
	return &bed{c, &Reconciler{
		Cache: c.Cached(), Live: c.Live(), Client: c.API, Ledger: c.Ledger, Pools: c.Pools, CiliumPools: state.NewCiliumPools(),
		Pacing: c.Pacing, Pressure: c.Pressure,
		Events: c.Events, Metrics: own, Counters: c.Shared, Clock: c.Clock,
	}}
}
