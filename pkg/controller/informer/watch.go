package informer

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
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
	// Served reports whether the API server serves the kind. Nil: it does.
	Served func() (bool, error)
	// Optional: decisions wait for the initial list, but not for long.
	Optional bool
	// OnServed, if set, is called once it does. If the kind appeared later, its initial
	// list has been stored by then.
	OnServed func()
}

// begin watches a kind until ctx ends, and does not wait: an API server often answers a list
// only after a tenth of a second, and lists of several kinds together take no longer than one.
// The checker that it returns is done once the initial list has been stored.
func (w Watch) begin(ctx context.Context, c cache.Cache, reflectors *sync.WaitGroup) (toolscache.DoneChecker, error) {
	if w.Store != nil {
		reflector := toolscache.NewReflectorWithOptions(w.From, w.Object, w.Store, toolscache.ReflectorOptions{Name: "feed"})
		reflectors.Go(func() { reflector.RunWithContext(ctx) })
		return w.Store.HasSyncedChecker(), nil
	}
	informer, err := c.GetInformer(ctx, w.Object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", w.Object, err)
	}
	registration, err := informer.AddEventHandler(w.Handler)
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", w.Object, err)
	}
	return registration.HasSyncedChecker(), nil
}

// read begins watches, and waits until their initial lists have been stored, or ctx ends.
func (f *Feed) read(ctx context.Context, watches []Watch, reflectors *sync.WaitGroup) error {
	synced, optional, err := f.beginWatches(ctx, watches, reflectors)
	if err == nil && toolscache.WaitFor(ctx, "", synced...) {
		waitForOptional(ctx, optional)
	}
	return err
}

// beginWatches begins watches, and returns checks of their initial lists: optional is closed once an optional one has
// been stored.
func (f *Feed) beginWatches(ctx context.Context, watches []Watch, reflectors *sync.WaitGroup) (synced []toolscache.DoneChecker, optional []<-chan struct{}, err error) {
	logger := log.FromContext(ctx).WithName("feed")
	for _, w := range watches {
		if w.Served != nil {
			served, err := w.Served()
			if err != nil {
				return nil, nil, fmt.Errorf("asking for %T: %w", w.Object, err)
			}
			if served && w.Optional {
				optional = append(optional, w.untilServed())
			}
			if !served || w.Optional {
				reflectors.Go(func() { w.beginOnceServed(ctx, logger, f.Cache) })
				continue
			}
			if w.OnServed != nil {
				w.OnServed()
			}
		}
		initial, err := w.begin(ctx, f.Cache, reflectors)
		if err != nil {
			return nil, nil, err
		}
		synced = append(synced, initial)
	}
	return synced, optional, nil
}

// servedEvery is the interval of checks whether the API server serves a kind that it did not serve
// before.
const servedEvery = 30 * time.Second

// beginOnceServed watches a kind once the API server serves it.
func (w Watch) beginOnceServed(ctx context.Context, logger logr.Logger, c cache.Cache) {
	err := wait.PollUntilContextCancel(ctx, servedEvery, true, func(context.Context) (bool, error) {
		served, err := w.Served()
		if err != nil {
			logger.Error(err, "cannot tell whether the API server knows a kind; trying again", "kind", fmt.Sprintf("%T", w.Object))
		}
		return served, nil
	})
	if err != nil {
		return
	}
	var reflectors sync.WaitGroup
	defer reflectors.Wait()
	initial, err := w.begin(ctx, c, &reflectors)
	if err != nil {
		logger.Error(err, "cannot watch a kind that the API server has come to know; restart the operator")
		return
	}
	if toolscache.WaitFor(ctx, "", initial) && w.OnServed != nil {
		w.OnServed()
	}
}

// optionalWithin bounds the wait of decisions for optional kinds.
const optionalWithin = 10 * time.Second

// untilServed returns a channel that is closed after OnServed of an optional watch has been called.
func (w *Watch) untilServed() <-chan struct{} {
	stored := make(chan struct{})
	onServed := w.OnServed
	w.OnServed = func() {
		onServed()
		close(stored)
	}
	return stored
}

func waitForOptional(ctx context.Context, stored []<-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, optionalWithin)
	defer cancel()
	for _, done := range stored {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// Watches returns all watches of the Feed.
func (f *Feed) Watches(logger logr.Logger) []Watch {
	return append(f.claimWatches(logger), f.podWatch())
}

// podWatch returns the watch of the pods that need an address: by far the most objects.
func (f *Feed) podWatch() Watch {
	return Watch{Object: &corev1.Pod{}, From: f.From.Pods, Store: f.podStore()}
}

// claimWatches returns the watches that a claim depends on: all but that of pods.
func (f *Feed) claimWatches(logger logr.Logger) []Watch {
	watches := []Watch{
		{Object: &corev1.Pod{}, From: f.From.Agents, Agents: true, Store: f.agentStore()},
		{Object: &v1alpha1.PodIPBlock{}, Handler: f.blockHandler(logger)},
		{Object: f.Mode.AllocationObject(), From: f.From.CiliumNodes, Store: f.ciliumNodeStore()},
		{Object: &v1alpha1.PodIPPin{}, Handler: f.pinHandler(logger)},
		{Object: &v1alpha1.PodIPPool{}, Handler: handle(f.onPool, f.onPoolGone)},
		{Object: &corev1.Node{}, Handler: handle(f.onNode, f.onNodeGone)},
	}
	if f.Unscheduled != nil {
		watches = append(watches, Watch{Object: &corev1.Pod{}, From: f.From.Unscheduled, Store: f.unscheduledStore()})
	}
	if f.Mode.ManyPools() {
		watches = append(watches, Watch{Object: &corev1.Namespace{}, Handler: handle(
			func(n *corev1.Namespace) { f.namespaceWants(n.Name, state.PoolRequestOf(&n.ObjectMeta)) },
			func(n *corev1.Namespace) { f.namespaceWants(n.Name, state.PoolRequest{}) },
		)})
	}
	if f.Mode.ManyPools() && f.From.CiliumPools != nil {
		watches = append(watches, Watch{
			Object: &ciliumv2alpha1.CiliumPodIPPool{}, From: f.From.CiliumPools, Store: f.ciliumPoolStore(),
			Served: f.From.HasCiliumPools, OnServed: func() {
				f.CiliumPools.SetKnown()
				f.wake(ciliumPoolsServed, subject{})
			},
		})
	}
	watches = append(watches, f.addressWatches()...)
	if f.Routes != nil && f.From.FRRConfigurations != nil {
		watches = append(watches, Watch{
			Object: frrconfig.Empty("", ""), From: f.From.FRRConfigurations, Store: f.frrConfigurationStore(),
			Served: f.From.HasFRRConfigurations, Optional: true, OnServed: func() {
				f.Routes.SetKnown()
				f.wake(routesServed, subject{})
			},
		})
	}
	return watches
}

// addressWatches returns the watches of the cluster's own addresses, beside those of Nodes.
func (f *Feed) addressWatches() []Watch {
	var watches []Watch
	if f.From.HasServiceCIDRs != nil {
		watches = append(watches, Watch{Object: &networkingv1.ServiceCIDR{}, Served: f.From.HasServiceCIDRs, Handler: handle(
			func(s *networkingv1.ServiceCIDR) {
				f.wake(exclusionChanged, subject{excluded: f.exclude(exclude.ServiceCIDR, s.Name, exclude.OfServices(s))})
			},
			func(s *networkingv1.ServiceCIDR) {
				f.wake(exclusionChanged, subject{excluded: f.exclude(exclude.ServiceCIDR, s.Name, nil)})
			},
		)})
	}
	if f.From.Services != nil {
		watches = append(watches, Watch{Object: &corev1.Service{}, From: f.From.Services, Store: f.serviceStore()})
	}
	if f.From.HasLoadBalancerPools != nil {
		watches = append(watches, Watch{Object: &ciliumv2.CiliumLoadBalancerIPPool{}, Served: f.From.HasLoadBalancerPools, Handler: handle(
			func(p *ciliumv2.CiliumLoadBalancerIPPool) {
				f.ask(exclude.LoadBalancerPool, p.Name, p.CreationTimestamp.Time, exclude.OfLoadBalancerPool(p))
			},
			func(p *ciliumv2.CiliumLoadBalancerIPPool) {
				f.ask(exclude.LoadBalancerPool, p.Name, time.Time{}, nil)
			},
		)})
	}
	if f.From.APIServer != "" {
		if addr, ok := ipalloc.ParseAddr(f.From.APIServer); ok {
			f.wake(exclusionChanged, subject{excluded: f.exclude(exclude.APIServer, f.From.APIServer, exclude.Of([]netip.Addr{addr}))})
		}
	}
	if f.From.Endpoints != nil {
		watches = append(watches, Watch{
			Object: &discoveryv1.EndpointSlice{}, From: f.From.Endpoints, Store: f.endpointStore(),
			Served: func() (bool, error) { return true, nil }, Optional: true, OnServed: func() {},
		})
	}
	return watches
}

// handle builds a handler from a function for objects that exist and one for objects
// that are gone.
func handle[T client.Object](onUpsert, onDelete func(T)) toolscache.ResourceEventHandler {
	typed := func(obj any, call func(T)) {
		if o, ok := obj.(T); ok {
			call(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { typed(obj, onUpsert) },
		UpdateFunc: func(old, obj any) {
			typed(obj, func(o T) {
				// After a broken watch, a delete and re-create arrive as one update.
				if previous, ok := old.(T); ok && previous.GetUID() != o.GetUID() {
					onDelete(previous)
				}
				onUpsert(o)
			})
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			typed(obj, onDelete)
		},
	}
}
