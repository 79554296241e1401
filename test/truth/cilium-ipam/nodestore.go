package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	k8sclient "github.com/cilium/cilium/pkg/k8s/client"
	typedv2 "github.com/cilium/cilium/pkg/k8s/client/clientset/versioned/typed/cilium.io/v2"
	"github.com/cilium/cilium/pkg/k8s/resource"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type nodeEvent = resource.Event[*ciliumv2.CiliumNode]

// nodeStore is an API server with one CiliumNode, and the agent's watch of it, which shows a
// version only on request (agentK8s.LocalCiliumNodeResource).
type nodeStore struct {
	typedv2.CiliumNodeInterface // nil: the manager only writes

	mu      sync.Mutex
	node    *ciliumv2.CiliumNode // nil if there is none
	version int
	refuse  string // the error of the next write

	shown    *ciliumv2.CiliumNode
	unseen   []nodeEvent
	synced   bool
	watchers map[chan nodeEvent]bool
}

// put writes as any client but the agent does: unconditionally, and the status too.
func (s *nodeStore) put(cn *ciliumv2.CiliumNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit(cn.DeepCopy())
}

func (s *nodeStore) delete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		s.unseen = append(s.unseen, nodeEvent{Kind: resource.Delete, Object: s.node})
		s.node = nil
	}
}

// current returns the stored CiliumNode, or nil if there is none.
func (s *nodeStore) current() *ciliumv2.CiliumNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.DeepCopy()
}

// commit stores a version, unless it equals the last one.
func (s *nodeStore) commit(cn *ciliumv2.CiliumNode) {
	if s.node != nil {
		cn.ResourceVersion = s.node.ResourceVersion
		if asJSON(cn) == asJSON(s.node) {
			return
		}
	}
	s.version++
	cn.ResourceVersion = strconv.Itoa(s.version)
	stored := &ciliumv2.CiliumNode{}
	if err := json.Unmarshal([]byte(asJSON(cn)), stored); err != nil {
		panic(err) // It was just marshaled.
	}
	s.node = stored
	s.unseen = append(s.unseen, nodeEvent{Kind: resource.Upsert, Object: stored})
}

func asJSON(cn *ciliumv2.CiliumNode) string {
	text, err := json.Marshal(cn)
	if err != nil {
		panic(err) // CiliumNodes can be marshaled.
	}
	return string(text)
}

// Update writes everything but the status.
func (s *nodeStore) Update(_ context.Context, cn *ciliumv2.CiliumNode, _ metav1.UpdateOptions) (*ciliumv2.CiliumNode, error) {
	return s.write(cn, false)
}

// UpdateStatus writes the status alone.
func (s *nodeStore) UpdateStatus(_ context.Context, cn *ciliumv2.CiliumNode, _ metav1.UpdateOptions) (*ciliumv2.CiliumNode, error) {
	return s.write(cn, true)
}

func (s *nodeStore) write(cn *ciliumv2.CiliumNode, status bool) (*ciliumv2.CiliumNode, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refuse := s.refuse
	s.refuse = ""
	nodes := schema.GroupResource{Group: "cilium.io", Resource: "ciliumnodes"}
	switch {
	case refuse == "error":
		return nil, errors.New("refused by the test")
	case s.node == nil:
		return nil, apierrors.NewNotFound(nodes, cn.Name)
	case refuse == "conflict", cn.ResourceVersion != s.node.ResourceVersion:
		return nil, apierrors.NewConflict(nodes, cn.Name, errors.New("the object has been modified"))
	}
	next := cn.DeepCopy()
	if status {
		next = s.node.DeepCopy()
		cn.Status.DeepCopyInto(&next.Status)
	} else {
		s.node.Status.DeepCopyInto(&next.Status)
	}
	s.commit(next)
	return s.node.DeepCopy(), nil
}

// see shows the next version that the watch has not shown, or only the last of them.
func (s *nodeStore) see(last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unseen) == 0 {
		return
	}
	if last {
		s.unseen = s.unseen[len(s.unseen)-1:]
	}
	ev := s.unseen[0]
	s.unseen = s.unseen[1:]
	if s.shown = nil; ev.Kind == resource.Upsert {
		s.shown = ev.Object
	}
	s.show(ev)
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
	s.shown, s.unseen, s.synced, s.watchers = nil, nil, false, map[chan nodeEvent]bool{}
	if s.node != nil {
		s.unseen = []nodeEvent{{Kind: resource.Upsert, Object: s.node}}
	}
}

// Events implements resource.FilteredResource. A later watcher starts with the objects shown
// before.
func (s *nodeStore) Events(ctx context.Context, _ ...resource.EventsOpt) <-chan nodeEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := make(chan nodeEvent, 16)
	if s.shown != nil {
		w <- own(nodeEvent{Kind: resource.Upsert, Object: s.shown})
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
