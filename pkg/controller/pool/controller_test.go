package pool

import (
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const updateStatus = "update PodIPPool status"

// poolLook reconciles pool p once, and returns its writes.
func (b *bed) poolLook() []string {
	b.T.Helper()
	b.Calls = nil
	if _, err := b.r.Reconcile(b.T.Context(), fakeapi.RequestOf("p")); err != nil {
		b.T.Fatal(err)
	}
	return fakeapi.WritesOf(b.Calls)
}

// A pool that is deleted during a reconcile is reconciled as it was, or not at all.
func TestPoolGoesMeanwhile(t *testing.T) {
	for name, call := range map[string]string{"before its finalizer": "patch PodIPPool", "before its status": "update PodIPPool status"} {
		t.Run(name, func(t *testing.T) {
			pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
			if call != "patch PodIPPool" {
				pool = fixtures.Finalized(pool)
			}
			b := newBed(t, pool)
			gone := false
			b.Before = func(now string) {
				if !gone && now == call {
					gone = true
					b.Pools.Delete("p")
					if err := b.API.Delete(t.Context(), fixtures.PodIPPool("p", 1, "10.0.0.0/28")); err != nil {
						t.Fatal(err)
					}
				}
			}
			b.poolLook()
			if !gone {
				t.Errorf("no %s among %v", call, b.Calls)
			}
		})
	}
}

// A deleted pool stays until none of its blocks is left, whether the watch or only the API
// server knows them.
func TestPoolFinalizer(t *testing.T) {
	block := fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)
	tests := map[string]struct {
		pool    *v1alpha1.PodIPPool
		objects []client.Object
		news    func(b *bed)
		there   bool
	}{
		"deleted, and nothing is left": {pool: fixtures.BeingDeleted(fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28")))},
		"deleted, and a block is left": {
			pool: fixtures.BeingDeleted(fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))), objects: []client.Object{block}, there: true,
		},
		"deleted, and a block is left that the watch has not shown": {
			pool: fixtures.BeingDeleted(fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))), objects: []client.Object{block}, there: true,
			news: func(b *bed) { b.Ledger.Remove(b.Blocks()[0]) },
		},
		"deleted, and a block is left that only the ledger knows": {
			pool: fixtures.BeingDeleted(fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))), there: true,
			news: func(b *bed) { b.Ledger.Upsert(b.ReadBlock(block)) },
		},
		"not deleted": {pool: fixtures.PodIPPool("p", 1, "10.0.0.0/28"), there: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, append([]client.Object{test.pool}, test.objects...)...)
			if test.news != nil {
				test.news(b)
			}
			b.poolLook()
			got := &v1alpha1.PodIPPool{}
			err := b.API.Get(t.Context(), types.NamespacedName{Name: "p"}, got)
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if there := err == nil; there != test.there {
				t.Fatalf("the pool is there: %t, want %t", there, test.there)
			}
			if test.there && !slices.Contains(got.Finalizers, v1alpha1.Finalizer) {
				t.Errorf("finalizers are %v", got.Finalizers)
			}
		})
	}
}

// A refused finalizer does not stop the status.
func TestRefusedFinalizerHidesNoStatus(t *testing.T) {
	b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.Refuse = map[string]error{"patch PodIPPool": errors.New("no")}
	_, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("p"))
	if err == nil || !slices.Contains(b.Calls, updateStatus) {
		t.Errorf("%v; calls %v", err, b.Calls)
	}
}

// A pool's status is written only when it changes.
func TestPoolStatusAtRest(t *testing.T) {
	b := newBed(t, fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28")))
	if writes := b.poolLook(); !slices.Equal(writes, []string{updateStatus}) {
		t.Errorf("first writes are %v", writes)
	}
	if writes := b.poolLook(); len(writes) > 0 {
		t.Errorf("settled: writes %v", writes)
	}
	b.Ledger.Upsert(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	if writes := b.poolLook(); !slices.Equal(writes, []string{updateStatus}) {
		t.Errorf("with a block: writes %v, want one", writes)
	}
}
