package block

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// reconcileBlock lets the block controller look at a block once, and returns its writes.
func reconcileBlock(b *fakeapi.Cluster, name string, paused bool) []string {
	b.T.Helper()
	b.Calls = nil
	r := &Reconciler{Cache: b.Cached(), Client: b.API, Ledger: b.Ledger, Events: b.Events, Counters: b.Shared, Clock: b.Clock, ReadOnly: paused}
	if _, err := r.Reconcile(b.T.Context(), fakeapi.RequestOf(name)); err != nil {
		b.T.Fatal(err)
	}
	return b.Calls
}

func withoutFinalizer(obj *v1alpha1.PodIPBlock) *v1alpha1.PodIPBlock {
	obj.Finalizers = nil
	return obj
}

func TestBlockFinalizer(t *testing.T) {
	add := []string{"patch PodIPBlock"}
	tests := map[string]struct {
		obj    *v1alpha1.PodIPBlock
		paused bool
		want   []string
	}{
		"made by hand":                          {obj: withoutFinalizer(fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)), want: add},
		"draining, and taken off by hand":       {obj: withoutFinalizer(fixtures.BlockObject("10.0.0.0/30", ipalloc.Draining)), want: add},
		"ours":                                  {obj: fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)},
		"cooled down, and taken off to release": {obj: withoutFinalizer(fixtures.BlockObject("10.0.0.0/30", ipalloc.CoolingDown))},
		"being deleted":                         {obj: fixtures.BeingDeleted(fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))},
		"the operator is paused":                {obj: withoutFinalizer(fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)), paused: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := fakeapi.New(t, ciliumnode.CRD, test.obj)
			if diff := cmp.Diff(test.want, reconcileBlock(b, test.obj.Name, test.paused), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if k := b.Blocks()[0]; test.want != nil && !k.Finalized {
				t.Error("it has no finalizer")
			}
			if again := reconcileBlock(b, test.obj.Name, test.paused); len(again) > 0 {
				t.Errorf("settled: writes %v", again)
			}
		})
	}
}

// A block without its finalizer says that it overlaps another.
func TestRefusedFinalizerHidesNoConflict(t *testing.T) {
	obj := withoutFinalizer(fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b := fakeapi.New(t, ciliumnode.CRD, obj)
	b.Refuse = map[string]error{"patch PodIPBlock": errors.New("no")}
	b.Ledger.Upsert(fixtures.Block("10.0.0.0/29", "q", "m", 1))
	r := &Reconciler{Cache: b.Cached(), Client: b.API, Ledger: b.Ledger, Events: b.Events, Counters: b.Shared, Clock: b.Clock}
	if _, err := r.Reconcile(t.Context(), fakeapi.RequestOf(obj.Name)); err == nil || !b.Blocks()[0].Conflict {
		t.Errorf("%v; the block is %+v", err, b.Blocks()[0])
	}
}

// A block says that it overlaps another as long as it does, and is written once
// for each turn.
func TestBlockConflict(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD, fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	other := fixtures.Block("10.0.0.0/29", "q", "m", 1)
	conflict := func(want bool) {
		t.Helper()
		if k := b.Blocks()[0]; k.Conflict != want {
			t.Errorf("conflict is %t, want %t", k.Conflict, want)
		}
	}
	for _, step := range []struct {
		what string
		do   func()
		want int // writes
		is   bool
	}{
		{"alone", func() {}, 0, false},
		{"another comes", func() { b.Ledger.Upsert(other) }, 1, true},
		{"both stay", func() {}, 0, true},
		{"the other goes", func() { b.Ledger.Remove(other) }, 1, false},
		{"alone again", func() {}, 0, false},
	} {
		step.do()
		if got := reconcileBlock(b, crd.BlockName(fixtures.Prefix("10.0.0.0/30")), false); len(got) != step.want {
			t.Errorf("%s: writes %v, want %d", step.what, got, step.want)
		}
		conflict(step.is)
	}
}
