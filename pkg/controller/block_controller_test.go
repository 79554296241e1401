package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// blockLook lets the block controller look at a block once, and returns what it
// writes.
func (b *bed) blockLook(name string, paused bool) []string {
	b.t.Helper()
	b.calls = nil
	r := &BlockReconciler{Cache: b.api, Client: b.api, Ledger: b.r.Ledger, Events: b.r.Events, Metrics: b.r.Metrics, Clock: b.clock, Paused: paused}
	if _, err := r.Reconcile(b.t.Context(), requestOf(name)); err != nil {
		b.t.Fatal(err)
	}
	return b.calls
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
		"made by hand":                        {obj: withoutFinalizer(fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)), want: add},
		"draining, and taken off by hand":     {obj: withoutFinalizer(fixtures.BlockObject("10.0.0.0/30", ipalloc.Draining)), want: add},
		"ours":                                {obj: fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)},
		"rested, and taken off to give it up": {obj: withoutFinalizer(fixtures.BlockObject("10.0.0.0/30", ipalloc.CoolingDown))},
		"being deleted":                       {obj: fixtures.BeingDeleted(fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))},
		"the operator is paused":              {obj: withoutFinalizer(fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)), paused: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, test.obj)
			if diff := cmp.Diff(test.want, b.blockLook(test.obj.Name, test.paused), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if k := b.blocks()[0]; test.want != nil && !k.Finalized {
				t.Error("it has no finalizer")
			}
			if again := b.blockLook(test.obj.Name, test.paused); len(again) > 0 {
				t.Errorf("at rest: writes %v", again)
			}
		})
	}
}

// A block says that it overlaps another as long as it does, and is written once
// for each turn.
func TestBlockConflict(t *testing.T) {
	b := newBed(t, fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	other := fixtures.Block("10.0.0.0/29", "q", "m", 1)
	conflict := func(want bool) {
		t.Helper()
		if k := b.blocks()[0]; k.Conflict != want {
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
		{"another comes", func() { b.r.Ledger.Upsert(other) }, 1, true},
		{"both stay", func() {}, 0, true},
		{"the other goes", func() { b.r.Ledger.Remove(other) }, 1, false},
		{"alone again", func() {}, 0, false},
	} {
		step.do()
		if got := b.blockLook(crd.BlockName(fixtures.Prefix("10.0.0.0/30")), false); len(got) != step.want {
			t.Errorf("%s: writes %v, want %d", step.what, got, step.want)
		}
		conflict(step.is)
	}
}
