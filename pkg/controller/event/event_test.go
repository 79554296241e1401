package event

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A note that is too long ends with a whole character: JSON would replace a part of one by three bytes,
// and the API server refuses the event.
func TestLongNote(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	e := NewRecorder(recorder, clocktesting.NewFakePassiveClock(fixtures.Noon()))
	e.Send(fixtures.Node(), ReasonBlockRemade, Reconcile, "x"+strings.Repeat("…", maxNote))
	_, note, _ := strings.Cut(<-recorder.Events, "x")
	if sent, err := json.Marshal(note); err != nil || len(sent) > maxNote+1 || strings.ContainsRune(note, utf8.RuneError) {
		t.Errorf("%d bytes: %q", len(sent), note)
	}
}

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
