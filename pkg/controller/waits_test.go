package controller

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/block"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/node"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// Before everything has been read, no controller reads or writes anything.
func TestReconcileWaitsUntilEverythingIsRead(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.CiliumNode("n", "", "10.0.0.0/30"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	ledger := state.NewLedger()
	for _, k := range b.Blocks() {
		ledger.Upsert(k)
	}
	b.Ledger = ledger
	pools := poolReconciler(b)
	for name, r := range map[string]reconcile.Reconciler{
		"n":           &node.Reconciler{Cluster: state.Cluster{Ledger: ledger}},
		"10.0.0.0-30": &block.Reconciler{Cache: b.Cached(), Client: b.API, Ledger: ledger},
		"p":           pools,
		"default":     &ciliumpool.Reconciler{Live: b.API, Client: b.API, Ledger: ledger, Pools: b.Pools, CiliumPools: state.NewCiliumPools()},
	} {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if _, err := r.Reconcile(ctx, fakeapi.RequestOf(name)); err == nil || len(b.Calls) > 0 {
			t.Errorf("%T: calls %v, %v; want none, and an error", r, b.Calls, err)
		}
	}
}
