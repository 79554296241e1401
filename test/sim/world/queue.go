package world

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is a work queue on the world's clock (k8s.io/client-go/util/workqueue): a name added
// while it is being processed is queued again afterwards. The world takes names itself.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request] // for methods that sources do not call

	now     func() time.Time
	waiting map[string]bool      // may be worked on
	working map[string]bool      // is worked on
	again   map[string]bool      // was added meanwhile
	later   map[string]time.Time // is to be added
	failed  map[string]int
}

func newQueue(now func() time.Time) *queue {
	return &queue{
		now: now, waiting: map[string]bool{}, working: map[string]bool{}, again: map[string]bool{},
		later: map[string]time.Time{}, failed: map[string]int{},
	}
}

// due moves names that have waited long enough.
func (q *queue) due() {
	for name, at := range q.later {
		if !at.After(q.now()) {
			delete(q.later, name)
			q.Add(request(name))
		}
	}
}

// ready returns the names to be processed, sorted.
func (q *queue) ready() []string {
	if len(q.waiting) == 0 {
		return nil
	}
	return sortedKeys(q.waiting)
}

// next returns when something comes due, or zero.
func (q *queue) next() time.Time {
	var first time.Time
	for _, at := range q.later {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// take begins to process a name.
func (q *queue) take(name string) {
	delete(q.waiting, name)
	q.working[name] = true
}

// done ends it with the reconciler's result
// (sigs.k8s.io/controller-runtime/pkg/internal/controller/controller.go, v0.24.1).
func (q *queue) done(name string, result reconcile.Result, err error) {
	switch {
	case err != nil:
		q.AddRateLimited(request(name))
	case result.RequeueAfter > 0:
		q.Forget(request(name))
		q.AddAfter(request(name), result.RequeueAfter)
	default:
		q.Forget(request(name))
	}
	delete(q.working, name)
	if q.again[name] {
		delete(q.again, name)
		q.waiting[name] = true
	}
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(r reconcile.Request) {
	if q.working[r.Name] {
		q.again[r.Name] = true
	} else {
		q.waiting[r.Name] = true
	}
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(r reconcile.Request, d time.Duration) {
	if d <= 0 {
		q.Add(r)
		return
	}
	at := q.now().Add(d)
	if old, ok := q.later[r.Name]; !ok || at.Before(old) {
		q.later[r.Name] = at
	}
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue) AddRateLimited(r reconcile.Request) {
	q.AddAfter(r, min(20*time.Millisecond<<min(q.failed[r.Name], 20), 30*time.Second))
	q.failed[r.Name]++
}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *queue) Forget(r reconcile.Request) { delete(q.failed, r.Name) }
