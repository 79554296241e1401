package controller

import (
	"fmt"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Store takes in what a reflector brings.
type Store interface {
	toolscache.ReflectorStore
	// HasSynced reports whether all there was at first has been taken in.
	HasSynced() bool
}

// records is a Store that keeps no object: it reads of each what is decided on,
// and hands that on. An informer would hold every object beside it, though
// nobody asks for one.
type records[O client.Object, R any] struct {
	// read takes from an object what is decided on.
	read func(O) R
	// there and gone hand on what the watch shows.
	there, gone func(R)
	// missing are those held whose UID is not among listed.
	missing func(listed map[types.UID]bool) []R

	mu     sync.Mutex
	synced bool
}

// record is what was read, under its UID, as it comes back from a list that was
// streamed.
type record[R any] struct {
	uid types.UID
	is  R
}

// Transformer lets a list that is streamed in be held as what is read of it.
func (s *records[O, R]) Transformer() toolscache.TransformFunc {
	return func(obj any) (any, error) { return s.record(obj) }
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

// Add takes in an object.
func (s *records[O, R]) Add(obj any) error {
	r, err := s.record(obj)
	if err == nil {
		s.there(r.is)
	}
	return err
}

// Update takes in an object as it is now.
func (s *records[O, R]) Update(obj any) error { return s.Add(obj) }

// Delete takes in an object, as it last was, that is gone.
func (s *records[O, R]) Delete(obj any) error {
	r, err := s.record(obj)
	if err == nil {
		s.gone(r.is)
	}
	return err
}

// Replace takes in all there is. What is held and not among it has gone while
// nobody watched.
func (s *records[O, R]) Replace(list []any, _ string) error {
	listed := make(map[types.UID]bool, len(list))
	for _, obj := range list {
		r, err := s.record(obj)
		if err != nil {
			return err
		}
		listed[r.uid] = true
		s.there(r.is)
	}
	for _, r := range s.missing(listed) {
		s.gone(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
	return nil
}

// Resync does nothing: what was taken in once stays.
func (s *records[O, R]) Resync() error { return nil }

// HasSynced reports whether a first list has been taken in.
func (s *records[O, R]) HasSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// lists makes what reflectors list and watch with.
type lists struct {
	config *rest.Config
	http   *http.Client
	scheme *runtime.Scheme
}

// of lists and watches a kind, of which namespace "" is all. Kinds that
// Kubernetes knows come as protobuf.
func (l lists) of(gvk schema.GroupVersionKind, resource, namespace string, by labels.Selector, field fields.Selector) (toolscache.ListerWatcher, error) {
	c, err := apiutil.RESTClientForGVK(gvk, false, false, l.config, serializer.NewCodecFactory(l.scheme), l.http)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", resource, err)
	}
	return toolscache.NewFilteredListWatchFromClient(c, resource, namespace, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = by.String(), field.String()
	}), nil
}
