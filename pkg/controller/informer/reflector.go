package informer

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Store stores the objects that a reflector lists and watches.
type Store interface {
	toolscache.ReflectorStore
	// HasSyncedChecker returns a checker that is done once the initial list has been stored.
	HasSyncedChecker() toolscache.DoneChecker
}

// records is a Store that keeps no object: it extracts the fields that decisions need,
// and passes those on. An informer would also keep every object, although no code reads
// them.
type records[O client.Object, R any] struct {
	// read extracts the fields that decisions need.
	read func(O) R
	// onUpsert and onDelete pass on the watch's deliveries.
	onUpsert, onDelete func(R)
	// missing returns the records that are deleted according to a list of a version,
	// which has their UID not among listed.
	missing func(listed map[types.UID]bool, version string) []R

	initial initialList
}

// record is the extract of an object, under its UID, as a streamed list returns it.
type record[R any] struct {
	uid   types.UID
	value R
}

// Transformer reduces each object of a streamed list to its record on arrival. It passes objects of
// the first list on at once, and returns their UIDs: a Reflector collects a whole list, and the
// records of 100,000 pods would take a quarter more memory. Later lists wait for their end, because
// decisions go on, and a list that breaks off would take them back in time.
func (s *records[O, R]) Transformer() toolscache.TransformFunc {
	return func(obj any) (any, error) {
		r, err := s.record(obj)
		if err != nil || toolscache.IsDone(s.HasSyncedChecker()) {
			return r, err
		}
		s.onUpsert(r.value)
		return r.uid, nil
	}
}

func (s *records[O, R]) record(obj any) (record[R], error) {
	switch obj := obj.(type) {
	case record[R]:
		return obj, nil
	case O:
		return record[R]{obj.GetUID(), s.read(obj)}, nil
	}
	return record[R]{}, fmt.Errorf("the watch shows a %T", obj)
}

// Add stores an object.
func (s *records[O, R]) Add(obj any) error {
	r, err := s.record(obj)
	if err == nil {
		s.onUpsert(r.value)
	}
	return err
}

// Update stores the new state of an object.
func (s *records[O, R]) Update(obj any) error { return s.Add(obj) }

// Delete removes an object, passed in its last state.
func (s *records[O, R]) Delete(obj any) error {
	r, err := s.record(obj)
	if err == nil {
		s.onDelete(r.value)
	}
	return err
}

// Replace stores a full list. Records that are not in it were deleted while no watch was running.
func (s *records[O, R]) Replace(list []any, version string) error {
	listed := make(map[types.UID]bool, len(list))
	for _, obj := range list {
		if uid, ok := obj.(types.UID); ok {
			listed[uid] = true // Transformer has passed it on
			continue
		}
		r, err := s.record(obj)
		if err != nil {
			return err
		}
		listed[r.uid] = true
		s.onUpsert(r.value)
	}
	for _, r := range s.missing(listed, version) {
		s.onDelete(r)
	}
	s.initial.setStored()
	return nil
}

// Resync is empty: records do not expire.
func (s *records[O, R]) Resync() error { return nil }

// HasSyncedChecker returns a checker that is done once a first list has been stored.
func (s *records[O, R]) HasSyncedChecker() toolscache.DoneChecker { return &s.initial }

// initialList is done once the initial list of a kind has been stored.
type initialList struct {
	made, stored sync.Once
	done         chan struct{}
}

// Name names it in logs.
func (l *initialList) Name() string { return "initial list" }

// Done returns a channel that is closed once the list has been stored.
func (l *initialList) Done() <-chan struct{} {
	l.made.Do(func() { l.done = make(chan struct{}) })
	return l.done
}

// setStored records that a list has been stored.
func (l *initialList) setStored() {
	l.Done()
	l.stored.Do(func() { close(l.done) })
}
