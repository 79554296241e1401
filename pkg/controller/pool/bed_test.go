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
	b := &bed{Cluster: fakeapi.New(t, mode, objects...)}
	b.connect()
	return b
}

// restart starts a new process, with what the API server holds.
func (b *bed) restart() {
	b.T.Helper()
	b.Restart()
	b.connect()
}

// connect starts a process whose informers have synced.
func (b *bed) connect() {
	b.T.Helper()
	own, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		b.T.Fatal(err)
	}
	b.r = &Reconciler{
		Cache: b.API, Live: b.Live(), Client: b.API, Ledger: b.Ledger, Pools: b.Pools, CiliumPools: state.NewCiliumPools(),
		Pacing: b.Pacing, Pressure: b.Pressure,
		Events: b.Events, Metrics: own, Shared: b.Shared, Clock: b.Clock,
	}
}
