package apiclient

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// Reads follows the lists and watches of a process. A process that may not list a kind waits for ever
// and looks healthy otherwise.
type Reads struct {
	// Now is the clock.
	Now func() time.Time
	// Show, if set, receives whether a kind is unread, whenever it may have changed: nothing of it has
	// been read yet, or the last list or watch failed.
	Show func(kind string, unread bool)
	// Restored, if set, is called when etcd has gone back to an earlier version, since it was restored: API servers
	// answer a watch from a later version with silence.
	Restored func()

	mu    sync.Mutex
	reads []*read
}

// Of returns a ListerWatcher of a kind that is followed.
func (r *Reads) Of(kind string, source toolscache.ListerWatcher) toolscache.ListerWatcher {
	one := &read{reads: r, kind: kind, source: toolscache.ToListerWatcherWithContext(source), noStream: watchlist.DoesClientNotSupportWatchListSemantics(source)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads = append(r.reads, one)
	return one
}

// Failing returns the kinds, sorted, of lists and watches that have failed since before a time.
func (r *Reads) Failing(deadline time.Time) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kinds []string
	for _, one := range r.reads {
		for _, failure := range []time.Time{one.listFails, one.watchFails} {
			if !failure.IsZero() && !failure.After(deadline) {
				kinds = append(kinds, one.kind)
			}
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// read is the list and watch of one reflector.
type read struct {
	reads  *Reads
	kind   string
	source toolscache.ListerWatcherWithContext
	// noStream: it cannot stream a list.
	noStream bool

	// listFails and watchFails are when the first of the last calls failed; zero: the last one succeeded.
	listFails, watchFails time.Time
	// called: there was a call, and done: it and the one before succeeded.
	called, done bool
	// newest is the latest version read; 0: none yet.
	newest uint64
}

// witness is the kind by which Reads recognizes a restore. Kinds of CRDs are always in the main etcd
// (--etcd-servers-overrides), and a list of one block costs little, as no selector applies to it.
const witness = "PodIPBlock"

// List implements toolscache.ListerWatcher.
func (r *read) List(options metav1.ListOptions) (runtime.Object, error) {
	return r.ListWithContext(context.Background(), options)
}

// Watch implements toolscache.ListerWatcher.
func (r *read) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return r.WatchWithContext(context.Background(), options)
}

// ListWithContext implements toolscache.ListerWatcherWithContext.
func (r *read) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	r.saw(options.ResourceVersion)
	list, err := r.source.ListWithContext(ctx, options)
	if ctx.Err() == nil {
		r.result(err, &r.listFails)
	}
	r.saw(versionOf(list))
	return list, err
}

// WatchWithContext implements toolscache.ListerWatcherWithContext. A watch follows a list, or streams one:
// where it begins, a list that failed before does no harm any more.
func (r *read) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	r.saw(options.ResourceVersion)
	r.compare(ctx)
	events, err := r.source.WatchWithContext(ctx, options)
	if ctx.Err() == nil {
		r.result(err, &r.watchFails, &r.listFails)
	}
	return events, err
}

// saw records a version that a list or an event had.
func (r *read) saw(version string) {
	if seen, err := strconv.ParseUint(version, 10, 64); err == nil {
		r.newest = max(r.newest, seen)
	}
}

// compare calls Restored if the present version is smaller than the newest. A list without a version in its options
// is consistent: no API server answers it with a version older than any answer before.
func (r *read) compare(ctx context.Context) {
	if r.reads.Restored == nil || r.kind != witness || r.newest == 0 {
		return
	}
	list, err := r.source.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return // the watch will fail, too
	}
	present, err := strconv.ParseUint(versionOf(list), 10, 64)
	if err == nil && present < r.newest {
		r.reads.Restored()
	}
}

// versionOf returns the resource version of a list, "" if there is none.
func versionOf(list runtime.Object) string {
	found, err := meta.ListAccessor(list)
	if err != nil {
		return ""
	}
	return found.GetResourceVersion()
}

// IsWatchListSemanticsUnSupported implements an interface of client-go's reflectors.
func (r *read) IsWatchListSemanticsUnSupported() bool { return r.noStream }

// result records the result of a call. An error counts from the first one on, for the first of fails; a success
// ends them all.
func (r *read) result(err error, fails ...*time.Time) {
	r.reads.mu.Lock()
	defer r.reads.mu.Unlock()
	if err != nil && fails[0].IsZero() {
		*fails[0] = r.reads.Now()
	}
	if err == nil {
		for _, begin := range fails {
			*begin = time.Time{}
		}
	}
	r.called = true
	r.done = err == nil && r.listFails.IsZero() && r.watchFails.IsZero()
	if r.reads.Show == nil {
		return
	}
	unread := func(one *read) bool { return one.kind == r.kind && one.called && !one.done }
	r.reads.Show(r.kind, slices.ContainsFunc(r.reads.reads, unread))
}
