package event

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

var ciliumNodes = schema.GroupResource{Group: "cilium.io", Resource: "ciliumnodes"}

func forbidden(why string) error {
	err := common.RefusalOf("CiliumNode", "n", "publish", apierrors.NewForbidden(ciliumNodes, "n", errors.New(why)))
	return fmt.Errorf("patching: %w", err)
}

// repeated is an error of several reconciles in a row.
type repeated struct {
	error
	times int
}

// A refusal is one event however often the write is tried. It is repeated before the API server
// forgets it, and ends with the first reconcile without an error.
func TestRefusedWrites(t *testing.T) {
	recorder, clock := events.NewFakeRecorder(100), clocktesting.NewFakePassiveClock(fixtures.Noon())
	e := NewRecorder(recorder, clock)
	conflict := apierrors.NewConflict(ciliumNodes, "n", errors.New("changed"))
	const refused, accepted, none = "Warning WriteRefused ", "Normal WriteAccepted ", ""
	steps := []struct {
		what  string
		after time.Duration
		err   error
		want  string
	}{
		{"nothing was refused", 0, nil, none},
		{"a conflict", 0, conflict, none},
		{"a timeout", 0, apierrors.NewTimeoutError("slow", 1), none},
		{"refused", 0, forbidden("no"), refused},
		{"tried again", time.Second, forbidden("no"), none},
		{"in other words", time.Second, forbidden("No."), none},
		{"a conflict is no end", time.Second, conflict, none},
		{"refused after the conflict", time.Second, forbidden("no"), none},
		{"refused for another reason for long", refusalChanged, forbidden("not any more"), refused},
		{"still refused", config.RefusalAgain - time.Second, forbidden("not any more"), none},
		{"still refused, and the event is old", time.Second, forbidden("not any more"), refused},
		{"accepted", time.Second, nil, accepted},
		{"at rest", time.Second, nil, none},
		{"refused again", time.Second, forbidden("no"), refused},
		{"accepted again", time.Second, nil, accepted},
		{"a conflict for long", 0, conflict, none},
		{"a few more", lastingFor, conflict, none},
		{"and more", time.Second, repeated{conflict, lastingTries - 3}, none},
		{"too many", time.Second, conflict, "Warning NoProgress "},
		{"and one more", time.Second, conflict, none},
		{"it ends", time.Second, nil, accepted},
		{"many at once", 0, repeated{conflict, 2 * lastingTries}, none},
	}
	for _, step := range steps {
		clock.SetTime(clock.Now().Add(step.after))
		again, times := step.err, 1
		var many repeated
		if errors.As(again, &many) {
			again, times = many.error, many.times
		}
		for range times {
			e.ReportResult("node n", again, func(*common.Refusal) runtime.Object { return fixtures.Node() })
		}
		got := none
		if len(recorder.Events) > 0 {
			got = <-recorder.Events
		}
		if !strings.HasPrefix(got, step.want) || (got == none) != (step.want == none) || len(recorder.Events) > 0 {
			t.Errorf("%s: %q and %d more, want %q", step.what, got, len(recorder.Events), step.want)
		}
	}
	e.ForgetResult("node n")
	if e.ReportResult("node n", nil, nil); len(recorder.Events) > 0 {
		t.Errorf("the end is reported of a node that is gone: %s", <-recorder.Events)
	}
}

// If the writes of all nodes are refused, the rate of events is bounded, and each node gets its
// own in the end.
func TestRefusedWritesAreLimited(t *testing.T) {
	recorder, clock := events.NewFakeRecorder(10000), clocktesting.NewFakePassiveClock(fixtures.Noon())
	e := NewRecorder(recorder, clock)
	const nodes = 2 * blockEventsAtOnce
	retry := func() int {
		for i := range nodes {
			e.ReportResult(fmt.Sprint("node ", i), forbidden("no"), func(*common.Refusal) runtime.Object { return fixtures.Node() })
		}
		return len(recorder.Events)
	}
	if got := retry(); got != blockEventsAtOnce {
		t.Errorf("sent %d at once, want %d", got, blockEventsAtOnce)
	}
	clock.SetTime(clock.Now().Add(time.Minute))
	if got := retry(); got != nodes {
		t.Errorf("sent %d a minute later, want one for each of %d nodes", got, nodes)
	}
}
