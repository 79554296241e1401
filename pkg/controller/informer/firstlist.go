package informer

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// firstList lets the first list reach a store object by object. A Reflector collects a list
// before its store sees any of it (k8s.io/client-go v0.36.3, tools/cache/reflector.go,
// watchList): of 100,000 pods that is more than what is kept of them in the end.
//
// Later lists are left to the Reflector. Decisions go on meanwhile, and a list that breaks off
// and is followed by one of an API server that lags would take them back in time.
type firstList struct {
	toolscache.ListerWatcherWithContext
	store firstListStore
}

// firstListStore is a Store that takes its first list object by object.
type firstListStore interface {
	Store
	// BeginFirst begins a list, or restarts it; the result for an earlier list no longer has an
	// effect. Only this list's objects may be passed to the result, which reports whether the
	// store has taken the event.
	BeginFirst() (take func(watch.Event) bool)
	// EndFirst announces that the next list arrives as a whole.
	EndFirst()
}

// listerWatcher returns a ListerWatcher for a Reflector that fills store.
func listerWatcher(from toolscache.ListerWatcher, store Store) toolscache.ListerWatcher {
	if store, ok := store.(firstListStore); ok {
		return firstList{toolscache.ToListerWatcherWithContext(from), store}
	}
	return from
}

func (l firstList) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

func (l firstList) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// ListWithContext lists: the API server does not stream lists.
func (l firstList) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	l.store.EndFirst()
	return l.ListerWatcherWithContext.ListWithContext(ctx, o)
}

// WatchWithContext watches. A watch that begins with a list passes that to the store.
func (l firstList) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := l.ListerWatcherWithContext.WatchWithContext(ctx, o)
	if err != nil || o.SendInitialEvents == nil || !*o.SendInitialEvents || toolscache.IsDone(l.store.HasSyncedChecker()) {
		return w, err
	}
	return newListWatch(w, l.store.BeginFirst()), nil
}

// IsWatchListSemanticsUnSupported is how a fake client tells a Reflector that it streams no lists.
func (l firstList) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.ListerWatcherWithContext)
}

// listWatch is a watch without the objects of the list that it begins with.
type listWatch struct {
	from watch.Interface
	out  chan watch.Event
	stop sync.Once
	done chan struct{}
}

func newListWatch(from watch.Interface, take func(watch.Event) bool) *listWatch {
	w := &listWatch{from: from, out: make(chan watch.Event), done: make(chan struct{})}
	go w.run(take)
	return w
}

func (w *listWatch) run(take func(watch.Event) bool) {
	defer close(w.out)
	listing := true
	for event := range w.from.ResultChan() {
		if listing && take(event) {
			continue
		}
		listing = listing && !endsList(event)
		select {
		case w.out <- event:
		case <-w.done:
		}
	}
}

// ResultChan returns the events.
func (w *listWatch) ResultChan() <-chan watch.Event { return w.out }

// Stop ends the watch.
func (w *listWatch) Stop() {
	w.stop.Do(func() { close(w.done) })
	w.from.Stop()
}

func endsList(event watch.Event) bool {
	obj, ok := event.Object.(metav1.Object)
	return ok && event.Type == watch.Bookmark && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// arriving is the state of the first list of records.
type arriving struct {
	mu sync.Mutex
	// list numbers the lists that have begun. Nothing of an earlier one is taken.
	list int
	// streams: the current list arrives object by object.
	streams bool
	// filled: something has been taken. The UIDs of the next list are then recorded in listed,
	// because objects of an earlier list, which broke off, may be deleted by now.
	filled bool
	listed map[types.UID]bool
}

// BeginFirst begins a list.
func (s *records[O, R]) BeginFirst() (take func(watch.Event) bool) {
	s.first.mu.Lock()
	defer s.first.mu.Unlock()
	s.first.list++
	s.first.streams, s.first.listed = true, nil
	if s.first.filled {
		s.first.listed = map[types.UID]bool{}
	}
	list := s.first.list
	return func(event watch.Event) bool { return s.take(list, event) }
}

// EndFirst announces that the next list arrives as a whole.
func (s *records[O, R]) EndFirst() { s.first.end() }

// end ends the current list. It reports whether the list arrived object by object, and its
// UIDs: nil if it is the first one, after which nothing can be missing.
func (a *arriving) end() (listed map[types.UID]bool, streamed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	listed, streamed = a.listed, a.streams
	a.list, a.streams, a.listed = a.list+1, false, nil
	return listed, streamed
}

// take takes an event of a list. It leaves anything that is not an object of the kind to the
// Reflector.
func (s *records[O, R]) take(list int, event watch.Event) bool {
	obj, ok := event.Object.(O)
	if !ok || event.Type != watch.Added && event.Type != watch.Modified && event.Type != watch.Deleted {
		return false
	}
	s.first.mu.Lock()
	defer s.first.mu.Unlock()
	if list != s.first.list {
		return true // another list has begun since
	}
	s.first.filled = true
	if event.Type == watch.Deleted {
		delete(s.first.listed, obj.GetUID())
		s.gone(s.read(obj))
		return true
	}
	if s.first.listed != nil {
		s.first.listed[obj.GetUID()] = true
	}
	s.there(s.read(obj))
	return true
}
