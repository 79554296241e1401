// Package controller puts the operator together from its reconcilers, its watches and its settings. It
// waits for its prerequisites, and checks the CRDs, Cilium's configuration and a recovery while it runs. It
// never decides whether a node grows or shrinks.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Setup adds the controllers and their dependencies to a manager. Create its cache with
// CacheOptions. Recovery holds back changes after a restore of etcd; nil: never.
func Setup(mgr manager.Manager, s config.Settings, recovery *state.Recovery) error {
	live, err := apiclient.NewLiveClient(mgr)
	if err != nil {
		return err
	}
	o, err := New(Environment{
		Cache: mgr.GetCache(), Live: live, Client: mgr.GetClient(),
		Recorder: mgr.GetEventRecorder("cilium-pool-operator"), Clock: clock.RealClock{}, Recovery: recovery,
	}, s)
	if err != nil {
		return err
	}
	writes := rate.NewLimiter(publishedPerSecond, 1)
	o.Publisher.Pace = writes.Wait
	o.Node.Blocks.Claimed = func() {
		if writes.Tokens() > -publishedPerSecond {
			writes.Reserve()
		}
	}
	feed := o.Feed
	feed.Cache = mgr.GetCache()
	feed.Elected = mgr.Elected()
	prerequisites := Prerequisites{
		Mapper: mgr.GetRESTMapper(), Live: mgr.GetAPIReader(),
		Mode: s.Mode, CiliumNamespace: s.AgentNamespace, SkipModeCheck: o.Node.Cluster.AnyMode, Cilium: o.Node.Cluster.Cilium,
	}
	pod := podOf(mgr.GetConfig(), mgr.GetAPIReader())
	scheduling := Scheduling{Mapper: mgr.GetRESTMapper(), Webhook: s.Webhook.Name != "", Families: s.OfferFamilies}
	feed.WaitForKinds = func(ctx context.Context) error {
		if err := prerequisites.wait(ctx, o.metrics); err != nil {
			return err
		}
		o.offer(scheduling.offers(ctx, o.metrics)) // no decision is made before
		o.Node.SetsNoTaint = !pod.tolerates(ctx, s.ShortageTaint, s.StartupTaints)
		return nil
	}
	reads := readsOf(mgr)
	reads.Show = func(kind string, unread bool) { o.metrics.unread.WithLabelValues(kind).Set(common.OneIf(unread)) }
	if feed.From, err = informer.SourcesFrom(mgr, reads, s.Mode, s.AgentNamespace, s.AgentSelector, s.FRRNamespace); err != nil {
		return err
	}
	if err := mgr.Add(feed); err != nil {
		return err
	}
	probes := &health{feed: feed, reads: reads, missing: prerequisites.Missing, clock: clock.RealClock{}}
	if err := errors.Join(mgr.AddReadyzCheck("ledger", probes.ready), mgr.AddHealthzCheck("workers", probes.alive)); err != nil {
		return err
	}
	if err := errors.Join(addChecks(mgr, o, s), addWebhook(mgr, o, s)); err != nil {
		return err
	}
	for _, c := range controllersOf(o, s) {
		err := builder.ControllerManagedBy(mgr).Named(c.name).WatchesRawSource(c.source).
			WithOptions(controller.Options{
				MaxConcurrentReconciles: c.concurrency,
				NewQueue:                c.newQueue,
				EnableWarmup:            ptr.To(true),
				// In controller-runtime v0.24.1 it can hold its lock forever at
				// shutdown, so that leadership is released only after the grace period
				// (pkg/controller/priorityqueue, handleReadyItems).
				UsePriorityQueue: ptr.To(false),
				RateLimiter:      common.NewRetries(),
			}).Complete(c.reconciler)
		if err != nil {
			return fmt.Errorf("setting up controller %s: %w", c.name, err)
		}
	}
	return nil
}

// readsOf returns the Reads of the manager's cache.
func readsOf(mgr manager.Manager) *apiclient.Reads {
	if c, ok := mgr.GetCache().(*apiclient.Cache); ok {
		return c.Reads
	}
	return &apiclient.Reads{Now: time.Now}
}

// addChecks adds the checks of the CRDs, of a recovery and of Cilium's configuration.
func addChecks(mgr manager.Manager, o *Operator, s config.Settings) error {
	if err := mgr.Add(&schemaCheck{live: mgr.GetAPIReader(), built: s.CRDSchemas, metrics: o.metrics, seen: map[string]bool{}}); err != nil {
		return err
	}
	if o.Node.Cluster.Recovery != nil {
		if err := mgr.Add(&recoveryCheck{cluster: &o.Node.Cluster, events: o.Node.Events, metrics: o.metrics, namespace: s.AgentNamespace}); err != nil {
			return err
		}
	}
	return mgr.Add(&ciliumConfigCheck{
		live: mgr.GetAPIReader(), cache: mgr.GetCache(), namespace: s.AgentNamespace, cluster: &o.Node.Cluster,
		events: o.Node.Events, metrics: o.metrics, leads: mgr.Elected(), changed: o.Feed.Reconfigured, every: s.CiliumConfigEvery,
	})
}

// PoolWorkers is the number of pools reconciled at once. In a surge each write takes hundreds of
// milliseconds, as the node workers keep the API server busy: one worker would then need minutes
// for the statuses of 200 pools.
const PoolWorkers = 8

// publishedPerSecond is the rate of the writes of conditions Published. At 5,000 nodes that join at
// once, or that an operator without the condition left, they take minutes. Claims count as such writes, so that
// conditions wait until a second after a surge of claims: nothing else waits for them.
const publishedPerSecond = 50

// controllerSpec is a controller and its parts.
type controllerSpec struct {
	name        string
	source      source.Source
	reconciler  reconcile.Reconciler
	concurrency int
	// newQueue makes its work queue. Nil: the default.
	newQueue func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func controllersOf(o *Operator, s config.Settings) []controllerSpec {
	specs := []controllerSpec{
		{name: "node", source: o.Feed.Source(informer.NodeQueue), reconciler: o.Node, concurrency: s.NodeWorkers, newQueue: o.Feed.NewNodeQueue},
		{name: "pool", source: o.Feed.Source(informer.PoolQueue), reconciler: o.Pool, concurrency: PoolWorkers},
		{name: "block", source: o.Feed.Source(informer.BlockQueue), reconciler: o.Block, concurrency: 1},
		{name: "pin", source: o.Feed.Source(informer.PinQueue), reconciler: o.Pin, concurrency: 1},
		{name: "published", source: o.Feed.Source(informer.PublishedQueue), reconciler: o.Publisher, concurrency: 1},
	}
	if s.Mode.ManyPools() {
		specs = append(specs,
			controllerSpec{name: "ciliumpool", source: o.Feed.Source(informer.CiliumPoolQueue), reconciler: o.CiliumPool, concurrency: 1},
			controllerSpec{name: "keeper", source: o.Feed.Source(informer.KeeperQueue), reconciler: o.Keeper, concurrency: 1})
	}
	if len(s.OfferFamilies) > 0 {
		specs = append(specs, controllerSpec{name: "unscheduled", source: o.Feed.Source(informer.UnscheduledQueue), reconciler: o.Unscheduled, concurrency: 1})
	}
	if o.Route != nil {
		specs = append(specs, controllerSpec{name: "route", source: o.Feed.Source(informer.RouteQueue), reconciler: o.Route, concurrency: PoolWorkers})
	}
	for i := range specs {
		specs[i].reconciler = untilShutdown{specs[i].reconciler}
	}
	return specs
}

// untilShutdown stops a reconciler during shutdown, and drops the errors that the shutdown causes.
// A queue that shuts down still hands out its items, and the controller would log a canceled
// context for each. The next leader reconciles everything.
type untilShutdown struct{ reconcile.Reconciler }

func (u untilShutdown) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if ctx.Err() != nil {
		return reconcile.Result{}, nil //nolint:nilerr // a shutdown is not a failure
	}
	result, err := u.Reconciler.Reconcile(ctx, req)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return reconcile.Result{}, nil
	}
	return result, err
}
