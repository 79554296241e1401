package informer

import (
	"context"
	"fmt"
	"sync"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Watch is a kind of object that the Feed watches.
type Watch struct {
	Object client.Object
	// Agents restricts the watch to the agents' pods.
	Agents bool
	// Handler receives events from the cache. Nil: a reflector fills Store from From.
	Handler toolscache.ResourceEventHandler
	Store   Store
	From    toolscache.ListerWatcher
	// Known reports whether the API server serves the kind. Nil: it does.
	Known func() (bool, error)
	// Found, if set, is called once it does. If the kind appeared later, its initial
	// list has been stored by then.
	Found func()
}

func (w Watch) found() {
	if w.Found != nil {
		w.Found()
	}
}

// begin watches a kind until ctx ends, and does not wait: an API server often answers a list
// only after a tenth of a second, and lists of several kinds together take no longer than one.
// The checker that it returns is done once the initial list has been stored.
func (f *Feed) begin(ctx context.Context, w Watch, reflectors *sync.WaitGroup) (toolscache.DoneChecker, error) {
	if w.Store != nil {
		reflectors.Go(func() { w.fill(ctx) })
		return w.Store.HasSyncedChecker(), nil
	}
	informer, err := f.Cache.GetInformer(ctx, w.Object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", w.Object, err)
	}
	registration, err := informer.AddEventHandler(w.Handler)
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", w.Object, err)
	}
	return registration.HasSyncedChecker(), nil
}

// fill lets a reflector fill Store until ctx ends.
func (w Watch) fill(ctx context.Context) {
	toolscache.NewReflectorWithOptions(w.From, w.Object, w.Store, toolscache.ReflectorOptions{Name: "feed"}).RunWithContext(ctx)
}

// Watches returns all watches of the Feed.
func (f *Feed) Watches(logger logr.Logger) []Watch {
	watches := []Watch{
		{Object: &corev1.Pod{}, From: f.From.Pods, Store: f.podStore()},
		{Object: &corev1.Pod{}, From: f.From.Agents, Agents: true, Store: f.agentStore()},
		{Object: &v1alpha1.PodIPBlock{}, Handler: f.blockHandler(logger)},
		{Object: f.Mode.AllocationObject(), From: f.From.CiliumNodes, Store: f.ciliumNodeStore()},
		{Object: &v1alpha1.PodIPPool{}, Handler: handle(f.pool, f.poolGone)},
		{Object: &corev1.Node{}, Handler: handle(f.node, f.nodeGone)},
	}
	if f.Unscheduled != nil {
		watches = append(watches, Watch{Object: &corev1.Pod{}, From: f.From.Unscheduled, Store: f.unscheduledStore()})
	}
	if f.Mode.ManyPools() {
		watches = append(watches, Watch{Object: &corev1.Namespace{}, Handler: handle(f.namespace, f.namespaceGone)})
	}
	if f.Mode.ManyPools() && f.From.CiliumPools != nil {
		watches = append(watches, Watch{Object: &ciliumv2alpha1.CiliumPodIPPool{}, From: f.From.CiliumPools, Store: f.ciliumPoolStore(), Known: f.From.HasCiliumPools, Found: f.ciliumPoolsFound})
	}
	if f.From.HasServiceCIDRs != nil {
		watches = append(watches, Watch{Object: &networkingv1.ServiceCIDR{}, Handler: handle(f.serviceCIDR, f.serviceCIDRGone), Known: f.From.HasServiceCIDRs})
	}
	if f.From.Services != nil {
		watches = append(watches, Watch{Object: &corev1.Service{}, From: f.From.Services, Store: f.serviceStore()})
	}
	if f.From.HasLoadBalancerPools != nil {
		watches = append(watches, Watch{Object: &ciliumv2.CiliumLoadBalancerIPPool{}, Handler: handle(f.loadBalancerPool, f.loadBalancerPoolGone), Known: f.From.HasLoadBalancerPools})
	}
	return watches
}

// handle builds a handler from a function for objects that exist and one for objects
// that are gone.
func handle[T client.Object](there, gone func(T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if o, ok := obj.(T); ok {
				there(o)
			}
		},
		UpdateFunc: func(old, obj any) {
			o, ok := obj.(T)
			if !ok {
				return
			}
			// After a broken watch, a delete and re-create arrive as one update.
			if was, ok := old.(T); ok && was.GetUID() != o.GetUID() {
				gone(was)
			}
			there(o)
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if o, ok := obj.(T); ok {
				gone(o)
			}
		},
	}
}
