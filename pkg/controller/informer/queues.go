// Package informer brings the watches' events into pkg/state and queues the affected objects: state
// first, then the queues, so that a reconcile never runs on less than the event that woke it. It
// stores objects in the form of decisions, and makes none.
package informer

import (
	"container/list"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue selects the work queue of a controller.
type Queue int

// The work queues of the controllers. UnscheduledQueue and KeeperQueue have one request for all
// pods.
const (
	NodeQueue Queue = iota
	PoolQueue
	BlockQueue
	PinQueue
	PublishedQueue
	CiliumPoolQueue
	UnscheduledQueue
	RouteQueue
	KeeperQueue
	queueCount
)

type workQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Queues are the work queues of the controllers that have a Source.
type Queues struct {
	// Elected is closed once this process leads. A standby does not queue: names would pile up as
	// nodes come and go. Nil: it leads.
	Elected <-chan struct{}

	mu        sync.RWMutex
	queues    [queueCount]workQueue
	missing   int           // sources that have not started
	connected chan struct{} // closed once all have
	order     *order        // of nodes
}

// Source returns the source of a controller, which connects its work queue.
func (q *Queues) Source(name Queue) source.Source {
	q.missing++
	return source.Func(func(_ context.Context, work workQueue) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.queues[name] = work
		if q.missing--; q.missing == 0 {
			close(q.connected)
		}
		return nil
	})
}

// add queues a request on the leader.
func (q *Queues) add(queue Queue, name string, delay time.Duration) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	work := q.queues[queue]
	if work == nil || name == "" || !q.leads() {
		return
	}
	if delay == 0 {
		work.Add(request(name)) // AddAfter counts as a retry
		return
	}
	work.AddAfter(request(name), delay)
}

// leads reports whether this process leads.
func (q *Queues) leads() bool {
	if q.Elected == nil {
		return true
	}
	select {
	case <-q.Elected:
		return true
	default:
		return false
	}
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// NewNodeQueue returns the work queue of nodes. It is first in, first out, except that nodes
// with a drain that has moved on precede all others. So a drain that has begun ends before
// many more begin: if thousands begin at once, marks for release time out before the agents'
// answers have had their turn.
func (q *Queues) NewNodeQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
			Name:  name,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: q.order}),
		}),
	})
}

// order is the order of a work queue's items. The work queue calls it under its lock, and never
// pushes an item that is waiting.
type order struct {
	mu sync.Mutex
	// preferred are items to hand out first, waiting or not yet pushed.
	preferred   map[reconcile.Request]bool
	first, rest *list.List
	// inRest are the elements of rest.
	inRest map[reconcile.Request]*list.Element
	// taken is the number of items handed out.
	taken uint64
}

func newOrder() *order {
	return &order{preferred: map[reconcile.Request]bool{}, first: list.New(), rest: list.New(), inRest: map[reconcile.Request]*list.Element{}}
}

// addFirst makes an item precede others, once it is added to the work queue and until it is
// handed out.
func (o *order) addFirst(item reconcile.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.preferred[item] = true
}

// Push adds an item.
func (o *order) Push(item reconcile.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.preferred[item] {
		o.first.PushBack(item)
		return
	}
	o.inRest[item] = o.rest.PushBack(item)
}

// Touch moves an item that is added again.
func (o *order) Touch(item reconcile.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.inRest[item]; e != nil && o.preferred[item] {
		o.rest.Remove(e)
		delete(o.inRest, item)
		o.first.PushBack(item)
	}
}

// Len returns the number of items.
func (o *order) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first.Len() + o.rest.Len()
}

// Pop removes and returns the next item.
func (o *order) Pop() reconcile.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := o.first
	if first.Len() == 0 {
		first = o.rest
	}
	item := first.Remove(first.Front()).(reconcile.Request)
	delete(o.inRest, item)
	delete(o.preferred, item)
	o.taken++
	return item
}

// NodesTaken returns the number of nodes that wait for a worker, and of those that workers have taken.
func (q *Queues) NodesTaken() (waiting int, taken uint64) {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	return q.order.first.Len() + q.order.rest.Len(), q.order.taken
}
