package node

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
)

// bed is a node controller on a fake API server.
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

// restart starts a new process, with the API server's objects.
func (b *bed) restart() {
	b.T.Helper()
	b.Restart()
	b.connect()
}

// connect starts a process with synced informers.
func (b *bed) connect() {
	b.T.Helper()
	own, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		b.T.Fatal(err)
	}
	b.r = &Reconciler{
		Cluster: state.Cluster{Ledger: b.Ledger, Pools: b.Pools, Defaults: b.Defaults(), Pods: state.NewPods(), Agents: state.NewAgents(time.Minute), Awaiting: &state.Awaiting{}, Taken: b.Pressure.Taken, StartupTaints: state.SetOf(crd.DefaultStartupTaints())},
		Cache:   b.Cached(), Live: b.Live(), CiliumNodes: &ciliumnode.Client{Writer: b.API, Reader: b.Live(), Mode: b.Mode},
		Blocks:   &BlockClient{Cache: b.Cached(), Live: b.Live(), Writer: b.API, Ledger: b.Ledger, Shared: b.Shared, Clock: b.Clock, WaitForCache: b.Ledger.WaitShown},
		Reporter: &Reporter{Client: b.API, Events: b.Events, Shared: b.Shared, Clock: b.Clock, Cache: b.Cached(), Live: b.Live(), Ledger: b.Ledger},
		Pacing:   b.Pacing, Pressure: b.Pressure,
		Events: b.Events, Metrics: own, Shared: b.Shared, Clock: b.Clock,
	}
}

// reconcile reconciles node n once and returns the calls it made.
func (b *bed) reconcile() ([]string, error) {
	b.T.Helper()
	b.Calls = nil
	b.Watch()
	_, err := b.r.Reconcile(b.T.Context(), fakeapi.RequestOf("n"))
	return b.Calls, err
}

// ensureCiliumNode runs the step of a reconcile that creates or restores the CiliumNode.
func (b *bed) ensureCiliumNode() {
	b.T.Helper()
	o, err := b.r.observe(b.T.Context(), "n")
	if err != nil {
		b.T.Fatal(err)
	}
	if next, err := b.r.ensureCiliumNode(b.T.Context(), o, &outcome{}); err != nil || next != nil {
		b.T.Fatalf("%v, and nothing written: %t", err, next != nil)
	}
}

// settle reconciles node n until a reconcile does not write.
func (b *bed) settle() {
	b.T.Helper()
	for range 50 {
		calls, err := b.reconcile()
		if err != nil {
			b.T.Fatal(err)
		}
		if len(fakeapi.WritesOf(calls)) == 0 {
			return
		}
	}
	b.T.Fatalf("still writing after 50 looks: %v", b.Calls)
}

// memoryOf returns the memory of a family of node n with a CiliumNode of this UID.
func (b *bed) memoryOf(uid types.UID, f ipalloc.Family) *expand.Memory {
	o := &observation{Snapshot: &state.Snapshot{Name: "n", CiliumNode: &ciliumnode.View{Name: "n", UID: uid}}}
	return b.r.memory.of("n").of(o, &state.Share{Family: f})
}
