package event

import (
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
)

// refusalChanged is the minimum time between two reports with different messages: webhooks'
// messages may differ each time.
const refusalChanged = 5 * time.Minute

// refusals are the writes that were refused at the last attempt, by the reconcile that sends
// them.
type refusals struct {
	clock clock.PassiveClock
	// limit bounds the events: a wrong role refuses the writes of all nodes.
	limit flowcontrol.PassiveRateLimiter

	mu   sync.Mutex
	last map[string]reported
}

type reported struct {
	about runtime.Object
	note  string
	at    time.Time
}

func newRefusals(c clock.PassiveClock) refusals {
	return refusals{
		clock: c, last: map[string]reported{},
		limit: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(blockEventsPerSecond, blockEventsAtOnce, c),
	}
}

// Writes reports the result of a reconcile's writes: that the API server refuses one, on the object
// that about returns, and, once all are done, that it no longer does; err is their error. Any other
// error decides nothing: a conflict or a timeout says neither. The key names the reconcile.
func (e *Recorder) Writes(key string, err error, about func(*common.Refusal) runtime.Object) {
	refused := common.RefusalIn(err)
	switch {
	case refused != nil && e.refusals.due(key, refused.Note()):
		is := reported{about(refused), refused.Note(), e.refusals.clock.Now()}
		e.refusals.set(key, is)
		e.Send(is.about, config.ReasonWriteRefused, actionOf(refused), is.note)
	case err == nil:
		if was, reported := e.refusals.end(key); reported {
			e.Send(was.about, config.ReasonWriteAccepted, Reconcile, "the API server no longer refuses the operator's writes")
		}
	}
}

// ForgetWrites drops the memory of a reconcile after its object is gone.
func (e *Recorder) ForgetWrites(key string) { e.refusals.end(key) }

// actionOf differs for events that SendWith must not merge.
func actionOf(refused *common.Refusal) string {
	return strings.ToUpper(refused.Write[:1]) + refused.Write[1:] + refused.Kind + string(apierrors.ReasonForError(refused))
}

// due reports whether a refusal should be reported now: it is new, and the limit allows another
// event. If the limit does not, the next attempt asks again.
func (r *refusals) due(key, note string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.last[key]
	wait := config.RefusalAgain
	if was.note != note {
		wait = refusalChanged
	}
	return (!known || r.clock.Since(was.at) >= wait) && r.limit.TryAccept()
}

func (r *refusals) set(key string, is reported) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[key] = is
}

func (r *refusals) end(key string) (was reported, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known = r.last[key]
	delete(r.last, key)
	return was, known
}
