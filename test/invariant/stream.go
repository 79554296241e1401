package invariant

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// rewatchAfter is the delay before a broken watch is restarted.
const rewatchAfter = 100 * time.Millisecond

// stream delivers every version of one kind, in order, starting with a list.
type stream struct {
	client Reader
	kind   Kind
	to     sink

	mu sync.Mutex
	// known are the delivered versions of the objects that exist.
	known map[string]uint64
	// last is the newest version delivered by the watch.
	last uint64
	// All events up to upTo, a version, are known to have been delivered.
	upTo    uint64
	changed chan struct{} // closed, and replaced, with each delivery
}

// sink receives the events of streams.
type sink interface {
	arrived(e event)
	passed(k Kind, version uint64)
	gap()
}

func newStream(c Reader, k Kind, to sink) *stream {
	return &stream{client: c, kind: k, to: to, known: map[string]uint64{}, changed: make(chan struct{})}
}

// list delivers the objects that existed at a version.
func (s *stream) list(ctx context.Context, at uint64) error {
	list := s.kind.newList()
	if err := s.client.List(ctx, list, exactly(at)); err != nil {
		return fmt.Errorf("list %ss at version %d: %w", s.kind, at, err)
	}
	return meta.EachListItem(list, func(o runtime.Object) error {
		s.deliver(o.(client.Object), false, found)
		return nil
	})
}

func exactly(at uint64) client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion:      strconv.FormatUint(at, 10),
		ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}}
}

// watch delivers the events after a version until ctx ends. If the API server no longer has
// everything since then, the gap is counted and the state after it is accepted.
func (s *stream) watch(ctx context.Context, from uint64) {
	for ctx.Err() == nil {
		begun := max(from, s.seenUpTo())
		var err error
		from, err = s.watchOnce(ctx, begun)
		// Where meanwhile more is known to have been seen, it goes on from there.
		if expired(err) && s.seenUpTo() <= begun {
			from = s.bridge(ctx, from)
		}
		_ = harness.Sleep(ctx, rewatchAfter) // the loop ends with ctx
	}
}

func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

func (s *stream) watchOnce(ctx context.Context, from uint64) (uint64, error) {
	_, err := Follow(ctx, s.client, s.kind.newList(), strconv.FormatUint(from, 10), func(t watch.EventType, object client.Object) error {
		from = versionOf(object)
		if t == watch.Bookmark {
			s.to.passed(s.kind, from)
		} else {
			s.deliver(object, t == watch.Deleted, watched)
		}
		return nil
	})
	return from, err
}

// Follow calls each for the events after a version, bookmarks included, until the watch ends or
// each fails. It returns the version of the last object. The end of ctx is not an error.
func Follow(
	ctx context.Context, c Reader, list client.ObjectList, from string,
	each func(watch.EventType, client.Object) error, opts ...client.ListOption,
) (string, error) {
	after := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true}}
	w, err := c.Watch(ctx, list, append([]client.ListOption{after}, opts...)...)
	if err != nil {
		if ctx.Err() != nil {
			return from, nil
		}
		return from, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		object, ok := e.Object.(client.Object)
		if !ok {
			return from, apierrors.FromObject(e.Object)
		}
		from = object.GetResourceVersion()
		if err := each(e.Type, object); err != nil {
			return from, err
		}
	}
	return from, nil
}

// bridge accepts the current state and returns its version. Versions were missed only if it differs
// from the state that was delivered last: an API server that has just started has no earlier
// versions, but usually there were no writes.
func (s *stream) bridge(ctx context.Context, from uint64) uint64 {
	list := s.kind.newList()
	if err := s.client.List(ctx, list); err != nil {
		return from // the next watch fails the same way
	}
	at, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return from
	}
	missed := false
	before := s.versions()
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		object := o.(client.Object)
		if before[keyOf(object)] != versionOf(object) {
			missed = true
			s.deliver(object, false, bridged)
		}
		delete(before, keyOf(object))
		return nil
	})
	for key := range before {
		missed = true
		s.forget(key, at)
	}
	if missed {
		s.to.gap()
	}
	s.to.passed(s.kind, at)
	return at
}

func (s *stream) seenUpTo() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.upTo
}

func (s *stream) versions() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.known)
}

func (s *stream) forget(key string, at uint64) {
	s.to.arrived(event{kind: s.kind, key: key, version: at, received: time.Now(), origin: bridged})
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key)
}

func (s *stream) deliver(o client.Object, deleted bool, from origin) {
	e := event{kind: s.kind, key: keyOf(o), version: versionOf(o), object: o, received: time.Now(), origin: from}
	if deleted {
		e.object = nil
	}
	s.to.arrived(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if deleted {
		delete(s.known, e.key)
	} else {
		s.known[e.key] = e.version
	}
	if from == watched {
		s.last = max(s.last, e.version)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// catchUp waits until all writes before the call have been delivered: until the delivered state
// matches a fresh list, or is newer.
func (s *stream) catchUp(ctx context.Context) error {
	list := s.kind.newMetadataList()
	if err := s.client.List(ctx, list); err != nil {
		return fmt.Errorf("list %ss: %w", s.kind, err)
	}
	at, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("list %ss: %w", s.kind, err)
	}
	want := make(map[string]uint64, len(list.Items))
	for i := range list.Items {
		want[keyOf(&list.Items[i])] = versionOf(&list.Items[i])
	}
	for {
		s.mu.Lock()
		reached, next := s.holds(want, at), s.changed
		if reached {
			s.upTo = max(s.upTo, at)
		}
		s.mu.Unlock()
		if reached {
			s.to.passed(s.kind, at)
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("wait for the %ss of version %d: %w", s.kind, at, ctx.Err())
		}
	}
}

// holds reports whether everything in a list at a version has been delivered. The caller holds
// s.mu.
func (s *stream) holds(want map[string]uint64, at uint64) bool {
	if s.last >= at {
		return true
	}
	// Everything so far is older than the list, so any difference is still to come.
	for key, version := range want {
		if s.known[key] < version {
			return false
		}
	}
	for key := range s.known {
		if _, there := want[key]; !there {
			return false
		}
	}
	return true
}

func versionOf(o client.Object) uint64 {
	version, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return version
}
