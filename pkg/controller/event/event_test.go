package event

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// In a storm of claims and drains the events of blocks stop; all other events continue.
func TestBlockEventsAreLimited(t *testing.T) {
	recorder := events.NewFakeRecorder(10000)
	clock := clocktesting.NewFakePassiveClock(fixtures.Noon())
	e := NewRecorder(recorder, clock)
	node, block := fixtures.Node(), &v1alpha1.PodIPBlock{}
	storm := func() int {
		for range 1000 {
			e.SendOften(node, block, ReasonBlockDraining, "")
		}
		n := len(recorder.Events)
		for range n {
			<-recorder.Events
		}
		return n
	}
	if got := storm(); got != blockEventsAtOnce {
		t.Errorf("sent %d of 1000 at once, want %d", got, blockEventsAtOnce)
	}
	clock.SetTime(fixtures.Noon().Add(2 * time.Second))
	if got := storm(); got != 2*blockEventsPerSecond {
		t.Errorf("sent %d two seconds later, want %d", got, 2*blockEventsPerSecond)
	}
	for range 10 {
		e.Send(block, ReasonBlockConflict, Reconcile, "overlaps")
	}
	if got := len(recorder.Events); got != 10 {
		t.Errorf("sent %d conflicts of 10", got)
	}
}
