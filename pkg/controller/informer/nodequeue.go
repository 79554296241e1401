package informer

import (
	"container/list"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// NewNodeQueue returns the work queue of nodes. It is first in, first out, except that nodes
// with a drain that has moved on precede all others. So a drain that has begun ends before
// many more begin: if thousands begin at once, marks for release time out before the agents'
// answers have had their turn.
func (f *Feed) NewNodeQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
			Name:  name,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: f.order}),
		}),
	})
}

// QueueNode has a node reconciled.
func (f *Feed) QueueNode(name string) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if name != "" && f.leads() {
		f.nodes.Add(request(name))
		if f.Unscheduled != nil && f.Unscheduled.Any() {
			f.unscheduled.AddAfter(request(unscheduledPods), reassignDelay)
		}
	}
}

// QueueNodes has nodes reconciled.
func (f *Feed) QueueNodes(names []string) {
	for _, name := range names {
		f.QueueNode(name)
	}
}

// queueNode has a node reconciled, on request before nodes that are queued otherwise.
func (f *Feed) queueNode(name string, first bool) {
	if first && f.leads() {
		f.order.addFirst(request(name))
	}
	f.QueueNode(name)
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
	from := o.first
	if from.Len() == 0 {
		from = o.rest
	}
	item := from.Remove(from.Front()).(reconcile.Request)
	delete(o.inRest, item)
	delete(o.preferred, item)
	return item
}
