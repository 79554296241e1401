package node

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A node with full pools and without a block counts as waiting for its first block until it has one
// or is gone. A node that only needs more blocks does not.
func TestNodeWithoutBlockIsCounted(t *testing.T) {
	other := crd.NewBlock(fixtures.Prefix("10.0.0.0/30"), "p", "m", "uid-m")
	other.UID, other.Finalizers = "uid-other", nil
	b := newBed(t, fixtures.Node(), carrier(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), other)
	changes := 0
	u := scheduling.NewUnscheduled()
	b.r.Unscheduled, u.Changed = u, func() { changes++ }
	expect := func(when string, waits bool, changed int) {
		t.Helper()
		b.settle()
		if got := u.Any(); got != waits || changes != changed {
			t.Errorf("%s: it counts: %t, %d changes; want %t, %d", when, got, changes, waits, changed)
		}
	}
	expect("its pool is full", true, 1)
	expect("nothing has changed", true, 1)
	b.must(b.API.Delete(t.Context(), other))
	expect("it has a block, and wants more for its reserve", false, 2)
}

func TestNodeThatIsGoneIsNotCounted(t *testing.T) {
	b := newBed(t, fixtures.Node())
	u := scheduling.NewUnscheduled()
	b.r.Unscheduled = u
	b.r.Unscheduled.SetWithoutBlock("n", true)
	b.r.forget("n")
	if u.Any() {
		t.Error("it still counts")
	}
}
