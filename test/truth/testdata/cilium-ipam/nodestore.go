package main

import (
	"context"
	"sync"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	k8sclient "github.com/cilium/cilium/pkg/k8s/client"
	typedv2 "github.com/cilium/cilium/pkg/k8s/client/clientset/versioned/typed/cilium.io/v2"
	"github.com/cilium/cilium/pkg/k8s/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

type nodeEvent = resource.Event[*ciliumv2.CiliumNode]

// nodeStore is a wire.Store with the agent's watch of it, which shows a version only on request
// (agentK8s.LocalCiliumNodeResource).
type nodeStore struct {
	typedv2.CiliumNodeInterface // nil: the manager only writes

	mu       sync.Mutex
	store    wire.Store
	synced   bool
	watchers map[chan nodeEvent]bool
}

// locked calls do with the store.
func (s *nodeStore) locked(do func(store *wire.Store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.store)
}

// Update writes everything but the status.
func (s *nodeStore) Update(_ context.Context, cn *ciliumv2.CiliumNode, _ metav1.UpdateOptions) (out *ciliumv2.CiliumNode, err error) {
	s.locked(func(store *wire.Store) { out, err = store.Write(cn, false) })
	return out, err
}

// UpdateStatus writes the status alone.
func (s *nodeStore) UpdateStatus(_ context.Context, cn *ciliumv2.CiliumNode, _ metav1.UpdateOptions) (out *ciliumv2.CiliumNode, err error) {
	s.locked(func(store *wire.Store) { out, err = store.Write(cn, true) })
	return out, err
}

// see shows the next version that the watch has not shown, or only the last of them.
func (s *nodeStore) see(last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, any := s.store.See(last)
	switch {
	case !any:
	case v.Deleted:
		s.show(nodeEvent{Kind: resource.Delete, Object: v.Node})
	default:
		s.show(nodeEvent{Kind: resource.Upsert, Object: v.Node})
	}
}

// seeAgain shows the last shown version once more, as a watch does that lists again.
func (s *nodeStore) seeAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store.Shown != nil {
		s.show(nodeEvent{Kind: resource.Upsert, Object: s.store.Shown})
	}
}

// sync reports to the agent that its watch has shown all objects that existed when it started.
func (s *nodeStore) sync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
	s.show(nodeEvent{Kind: resource.Sync})
}

func (s *nodeStore) show(ev nodeEvent) {
	for w := range s.watchers {
		w <- own(ev)
	}
}

// own returns the receiver's own copy of an event.
func own(ev nodeEvent) nodeEvent {
	ev.Done = func(error) {}
	if ev.Object != nil {
		ev.Key, ev.Object = resource.NewKey(ev.Object), ev.Object.DeepCopy()
	}
	return ev
}

// restart forgets the views of an earlier agent. Stored objects are shown again.
func (s *nodeStore) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = false
	s.watchers = map[chan nodeEvent]bool{}
	s.store.Restart()
}

// Events implements resource.FilteredResource. A later watcher starts with the objects shown
// before.
func (s *nodeStore) Events(ctx context.Context, _ ...resource.EventsOpt) <-chan nodeEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := make(chan nodeEvent, 16)
	if s.store.Shown != nil {
		w <- own(nodeEvent{Kind: resource.Upsert, Object: s.store.Shown})
	}
	if s.synced {
		w <- own(nodeEvent{Kind: resource.Sync})
	}
	watchers := s.watchers
	watchers[w] = true
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(watchers, w)
		close(w)
	})
	return w
}

// Observe implements resource.FilteredResource.
func (s *nodeStore) Observe(ctx context.Context, next func(nodeEvent), complete func(error)) {
	go func() {
		for ev := range s.Events(ctx) {
			next(ev)
		}
		complete(nil)
	}()
}

// storeClient is a client for the manager's use of CiliumV2().CiliumNodes() only.
type storeClient struct {
	k8sclient.Clientset
	store *nodeStore
}

func (c storeClient) CiliumV2() typedv2.CiliumV2Interface { return storeV2{store: c.store} }

type storeV2 struct {
	typedv2.CiliumV2Interface
	store *nodeStore
}

func (c storeV2) CiliumNodes() typedv2.CiliumNodeInterface { return c.store }
