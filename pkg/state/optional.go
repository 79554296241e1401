package state

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// optional stores the objects, by name, of a kind that not every API server serves.
type optional[V any] struct {
	mu     sync.RWMutex
	byName map[string]V
	uid    func(V) types.UID
	known  bool
}

// SetKnown records that the API server serves the kind.
func (o *optional[V]) SetKnown() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = true
}

// Known reports whether SetKnown has been called.
func (o *optional[V]) Known() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.known
}

// Get returns the object with a name, or nil.
func (o *optional[V]) Get(name string) V {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.byName[name]
}

// Missing returns the stored objects with a UID that is not among listed.
func (o *optional[V]) Missing(listed map[types.UID]bool) []V {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(o.byName)), func(v V) bool { return listed[o.uid(v)] })
}
