package mapcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
)

const (
	// lowestPause is the minimum time between two maps: changes in between are drawn together.
	// pauseFactor keeps a large cluster from taking more than a fifth of a processor.
	lowestPause = 250 * time.Millisecond
	pauseFactor = 4
	// problemFor is the time that a failed watch is shown. A failing watch fails again within 30 s,
	// client-go's longest back-off.
	problemFor = 45 * time.Second
	// pingEvery is the interval of checks that the API server responds: watches report no error
	// while a connection is refused (client-go v0.36, tools/cache/reflector.go). pingTime is the
	// timeout.
	pingEvery, pingTime = 5 * time.Second, 5 * time.Second
)

// watched is a cluster followed with watches, using the operator's kind of caches. As a reader it
// has the objects that the watches have delivered so far, and none of kinds without a watch.
type watched struct {
	cache.Cache // of all but the agents
	client      client.Client
	agents      cache.Cache
	host        string
	changed     cluster.Changes
	operator    clusterread.Operator
	namespace   string     // of the agents
	failures    chan error // holds one: a watch has failed
}

// watchCluster returns once everything has been read. The watches end with ctx.
func watchCluster(ctx context.Context, e *cli.Env) (*watched, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	operator, err := e.FindOperator(ctx)
	if err != nil {
		return nil, err
	}
	namespace, selector, err := e.Agents(operator)
	if err != nil {
		return nil, err
	}
	w := &watched{client: c, host: config.Host, operator: operator, namespace: namespace, changed: cluster.NewChanges(), failures: make(chan error, 1)}
	if w.Cache, err = w.newCache(config, c, mapCache(operator.Mode)); err != nil {
		return nil, err
	}
	if w.agents, err = w.newCache(config, c, agentCache(namespace, selector)); err != nil {
		return nil, err
	}
	synced, err := w.register(ctx)
	if meta.IsNoMatchError(err) {
		return nil, e.CannotRead(err)
	}
	if err != nil {
		return nil, w.unreadable(err)
	}
	return w, w.start(ctx, synced)
}

func (w *watched) newCache(config *rest.Config, c client.Client, o cache.Options) (cache.Cache, error) {
	o.Scheme, o.Mapper = c.Scheme(), c.RESTMapper()
	o.DefaultWatchErrorHandler = func(_ context.Context, _ *toolscache.Reflector, err error) { w.failed(err) }
	made, err := apiclient.NewToolCache(config, o)
	if err != nil {
		return nil, w.unreadable(err)
	}
	return made, nil
}

func (w *watched) unreadable(err error) error {
	return fmt.Errorf("cannot watch the cluster at %s: %w", w.host, err)
}

// failed records why a watch broke.
func (w *watched) failed(err error) {
	if cluster.WatchEnded(err) {
		return
	}
	select {
	case w.failures <- err:
	default: // one is enough
	}
}

// register creates the informers.
func (w *watched) register(ctx context.Context) ([]toolscache.InformerSynced, error) {
	kinds := []client.Object{&corev1.Pod{}, &ciliumv2.CiliumNode{}, &v1alpha1.PodIPBlock{}, &v1alpha1.PodIPPool{}, &corev1.Node{}}
	if w.operator.Mode.ManyPools() {
		kinds = append(kinds, &corev1.Namespace{})
	}
	all, err := w.changed.Watch(ctx, w.Cache, kinds...)
	if err != nil {
		return nil, err
	}
	agents, err := w.changed.Watch(ctx, w.agents, &corev1.Pod{})
	all = append(all, agents...)
	if err != nil || !w.operator.Mode.ManyPools() {
		return all, err
	}
	picking, err := w.changed.Watch(ctx, w.Cache, &ciliumv2alpha1.CiliumPodIPPool{})
	if meta.IsNoMatchError(err) {
		return all, nil // a cluster may do without CiliumPodIPPools
	}
	return append(all, picking...), err
}

// start runs the watches, and waits until they have delivered everything or one has failed.
func (w *watched) start(ctx context.Context, synced []toolscache.InformerSynced) error {
	for _, c := range []cache.Cache{w.Cache, w.agents} {
		go func() {
			if err := c.Start(ctx); err != nil {
				w.failed(err)
			}
		}()
	}
	done := make(chan bool, 1)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() { done <- toolscache.WaitForCacheSync(waiting.Done(), synced...) }()
	select {
	case err := <-w.failures:
		return w.unreadable(err)
	case <-done:
		return ctx.Err()
	}
}

// List lists objects from the caches. Only lists of agents name a namespace.
func (w *watched) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o, from := client.ListOptions{}, w.Cache
	if o.ApplyOptions(opts); o.Namespace != "" {
		from = w.agents
	}
	err := from.List(ctx, list)
	list.SetContinue("") // a cache says that more may come
	if unwatched := (*cache.ErrResourceNotCached)(nil); errors.As(err, &unwatched) {
		return nil
	}
	return err
}

// cluster returns the state that the watches have delivered so far.
func (w *watched) cluster(ctx context.Context) (*cluster.Cluster, error) {
	reader := clusterread.Reader{Client: w, AgentNamespace: w.namespace, Mode: w.operator.Mode}
	s, err := reader.Read(ctx)
	if err != nil {
		return nil, w.unreadable(err)
	}
	return cluster.New(s, w.operator), nil
}

// ping sends the API server a minimal request periodically until ctx ends.
func (w *watched) ping(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		once, stop := context.WithTimeout(ctx, pingTime)
		err := w.client.List(once, &v1alpha1.PodIPPoolList{}, client.Limit(1))
		stop()
		if err != nil && ctx.Err() == nil {
			w.failed(err)
		}
	}
}

// follow puts a map on the board whenever something has changed, until ctx ends.
func (w *watched) follow(ctx context.Context, board *addressmap.Board, draw func(*cluster.Cluster) *addressmap.Map) {
	go w.ping(ctx)
	healed := time.NewTimer(problemFor)
	defer healed.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-w.failures:
			board.Problem(w.unreadable(err).Error())
			healed.Reset(problemFor)
			continue
		case <-healed.C:
			board.Problem("")
			continue
		case <-w.changed:
		}
		began := time.Now()
		c, err := w.cluster(ctx)
		if err != nil {
			w.failed(err)
			continue
		}
		board.Put(draw(c))
		cluster.Pause(ctx, max(lowestPause, pauseFactor*time.Since(began)))
	}
}
