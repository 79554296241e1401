package agent

import (
	"context"
	"fmt"
	"sync"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Hub is one watch of all CiliumNodes for all agents of the process; each real agent has a
// watch of its own (crd.go:119). A subscriber receives every version of its CiliumNode, in
// order.
type Hub struct {
	client client.WithWatch

	mu          sync.Mutex
	latest      map[string]*ciliumv2.CiliumNode
	subscribers map[string]func(*ciliumv2.CiliumNode)
}

// NewHub returns a Hub; Run makes it watch.
func NewHub(c client.WithWatch) *Hub {
	return &Hub{
		client:      c,
		latest:      map[string]*ciliumv2.CiliumNode{},
		subscribers: map[string]func(*ciliumv2.CiliumNode){},
	}
}

// Run watches until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listWatch(h.client, func() client.ObjectList { return &ciliumv2.CiliumNodeList{} }),
		ObjectType:    &ciliumv2.CiliumNode{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { h.dispatch(obj, false) },
			UpdateFunc: func(_, obj any) { h.dispatch(obj, false) },
			DeleteFunc: func(obj any) { h.dispatch(obj, true) },
		},
		Transform: stripManagedFields,
	})
	informer.RunWithContext(ctx)
}

func (h *Hub) dispatch(obj any, deleted bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	cn, ok := obj.(*ciliumv2.CiliumNode)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	observe := h.subscribers[cn.Name]
	if deleted {
		delete(h.latest, cn.Name)
		cn = nil
	} else {
		h.latest[cn.Name] = cn
	}
	if observe != nil {
		observe(cn)
	}
}

// Subscribe passes the latest version of the named CiliumNode to observe, if there is one, and
// then every later one; nil means that it was deleted. observe must not modify the object, and
// must not block. The returned function ends the subscription. A second subscription for a name
// replaces the first.
func (h *Hub) Subscribe(name string, observe func(*ciliumv2.CiliumNode)) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cn := h.latest[name]; cn != nil {
		observe(cn)
	}
	h.subscribers[name] = observe
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribers, name)
	}
}

// listWatch makes a client serve an informer.
func listWatch(c client.WithWatch, list func() client.ObjectList, opts ...client.ListOption) cache.ListerWatcher {
	with := func(raw *metav1.ListOptions) []client.ListOption {
		return append([]client.ListOption{&client.ListOptions{Raw: raw}}, opts...)
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			l := list()
			if err := c.List(ctx, l, with(&raw)...); err != nil {
				return nil, fmt.Errorf("list: %w", err)
			}
			return l, nil
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, list(), with(&raw)...)
		},
	}, c)
}

func stripManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
