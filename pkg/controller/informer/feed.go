package informer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Changes of a pool's blocks are batched into one status write. A status counts all blocks of
// the pool, so a large pool's is written less often: a second later for each blocksPerSecond.
const (
	minStatusDelay  = time.Second
	maxStatusDelay  = 10 * time.Second
	blocksPerSecond = 20_000
)

// wakeDelay batches freed blocks into one reconcile of each node short of addresses.
const wakeDelay = 200 * time.Millisecond

// assignDelay batches pods that the scheduler finds no addresses for into one assignment
// of all of them to nodes, and reassignDelay all else that changes while some wait.
const (
	assignDelay   = 50 * time.Millisecond
	reassignDelay = 500 * time.Millisecond
)

// Feed first updates the ledger and the other stores from the watches, and only then queues the
// affected objects, so that no decision is made on less than the event that queued it.
type Feed struct {
	Cache cache.Cache // of the kinds that the reconcilers read
	// From lists and watches the other kinds.
	From   Sources
	Ledger *state.Ledger
	Pools  *state.Pools
	Pods   *state.Pods
	Agents *state.Agents
	// Unscheduled stores the pods that no node has addresses for; nil: not watched.
	Unscheduled *scheduling.Unscheduled
	// CiliumPools store CiliumPodIPPools, where From watches them.
	CiliumPools *state.CiliumPools
	// Mode selects how CiliumNodes are read.
	Mode ciliumnode.Mode
	// Awaiting are the nodes to reconcile when addresses of their pools come free.
	Awaiting *state.Awaiting
	Now      func() time.Time
	// Elected is closed once this process leads. A standby does not queue: names would pile up as
	// nodes come and go. Nil: it leads.
	Elected <-chan struct{}
	// Await returns once the API server serves all watched kinds. Nil: it does.
	Await func(context.Context) error

	mu                   sync.RWMutex
	nodes, pools, blocks queue
	ciliumPools          queue                // nil where From watches none
	unscheduled          queue                // nil without Unscheduled
	connected            chan struct{}        // closed once all queues exist
	names                map[string]bool      // all Nodes; true: it starves
	services             map[string]types.UID // Services with excluded addresses, as namespace/name
	order                *order               // of nodes
}

// Sources are listed and watched by reflectors.
type Sources struct {
	Pods, Unscheduled, Agents, CiliumNodes toolscache.ListerWatcher
	// CiliumPools are CiliumPodIPPools, and HasCiliumPools reports whether the API
	// server serves the kind. Nil: not watched.
	CiliumPools    toolscache.ListerWatcher
	HasCiliumPools func() (bool, error)
	// Services are all Services. Nil: not watched.
	Services toolscache.ListerWatcher
	// HasServiceCIDRs reports whether the API server serves ServiceCIDRs (Kubernetes
	// 1.33), and HasLoadBalancerPools whether it serves CiliumLoadBalancerIPPools. Nil: not
	// watched.
	HasServiceCIDRs, HasLoadBalancerPools func() (bool, error)
}

// NewFeed returns an empty Feed.
func NewFeed() *Feed {
	return &Feed{connected: make(chan struct{}), names: map[string]bool{}, services: map[string]types.UID{}, order: newOrder()}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// The sources of the controllers.

// NodeSource queues nodes.
func (f *Feed) NodeSource() source.Source { return f.source(func(q queue) { f.nodes = q }) }

// PoolSource queues pools.
func (f *Feed) PoolSource() source.Source { return f.source(func(q queue) { f.pools = q }) }

// BlockSource queues blocks.
func (f *Feed) BlockSource() source.Source { return f.source(func(q queue) { f.blocks = q }) }

// CiliumPoolSource queues Cilium's pools.
func (f *Feed) CiliumPoolSource() source.Source { return f.source(func(q queue) { f.ciliumPools = q }) }

// UnscheduledSource queues one request for all unscheduled pods.
func (f *Feed) UnscheduledSource() source.Source {
	return f.source(func(q queue) { f.unscheduled = q })
}

func (f *Feed) source(set func(queue)) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		set(q)
		if f.nodes != nil && f.pools != nil && f.blocks != nil && (f.ciliumPools != nil || f.From.CiliumPools == nil) &&
			(f.unscheduled != nil || f.Unscheduled == nil) {
			close(f.connected)
		}
		return nil
	})
}

// Start registers with the informers, waits for the initial state, and lets decisions
// begin. It is a manager's Runnable.
func (f *Feed) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("feed")
	select {
	case <-f.connected: // otherwise the first events would queue no object
	case <-ctx.Done():
		return nil
	}
	if f.Await != nil {
		if err := f.Await(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	var reflectors sync.WaitGroup
	defer reflectors.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var synced []toolscache.DoneChecker
	for _, w := range f.Watches(logger) {
		if w.Known != nil {
			known, err := w.Known()
			if err != nil {
				return fmt.Errorf("asking for %T: %w", w.Object, err)
			}
			if !known {
				reflectors.Go(func() { f.later(ctx, logger, w) })
				continue
			}
			w.found()
		}
		initial, err := f.begin(ctx, w, &reflectors)
		if err != nil {
			return err
		}
		synced = append(synced, initial)
	}
	if !toolscache.WaitFor(ctx, "", synced...) {
		return nil
	}
	f.Begin()
	logger.Info("everything has been read; decisions begin")
	select {
	case <-f.Elected:
		f.queueAll()
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// Begin lets decisions begin: all initial lists have been stored.
func (f *Feed) Begin() {
	f.Ledger.SetReady()
	f.allNodes()
	f.allCiliumPools()
}

// queueAll queues all objects, because a standby has queued none.
func (f *Feed) queueAll() {
	f.allNodes()
	f.AllPools()
	f.allCiliumPools()
	for _, cidr := range f.Ledger.CIDRs() {
		f.queueBlock(crd.BlockName(cidr))
	}
	f.Reassign()
}

// NeedLeaderElection is false: a standby keeps its caches warm.
func (f *Feed) NeedLeaderElection() bool { return false }

// leads reports whether this process leads.
func (f *Feed) leads() bool {
	if f.Elected == nil {
		return true
	}
	select {
	case <-f.Elected:
		return true
	default:
		return false
	}
}

// forgetGone drops the last state of a deleted CiliumNode on a standby, if its Node is gone
// too and no block is left. The leader does so when it reconciles the node: a response to
// one of its writes may still be under way.
func (f *Feed) forgetGone(node string) {
	f.mu.RLock()
	_, exists := f.names[node]
	f.mu.RUnlock()
	if !exists && f.Ledger.Ready() && !f.leads() && len(f.Ledger.NodeBlocks(node)) == 0 {
		f.Ledger.ForgetCiliumNode(node)
	}
}

// unscheduledPods is the request that stands for all unscheduled pods.
const unscheduledPods = "pods"

// queueUnscheduled has unscheduled pods assigned to nodes.
func (f *Feed) queueUnscheduled(after time.Duration) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.leads() {
		f.unscheduled.AddAfter(request(unscheduledPods), after)
	}
}

func (f *Feed) queuePool(name string, after time.Duration) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if name != "" && f.leads() {
		f.pools.AddAfter(request(name), after)
	}
}

// queuePoolStatus has the status of a pool written once more changes have come together.
func (f *Feed) queuePoolStatus(name string) {
	f.queuePool(name, statusDelay(f.Ledger.Size(name)))
}

func statusDelay(blocks int) time.Duration {
	return min(maxStatusDelay, minStatusDelay+time.Duration(blocks)*time.Second/blocksPerSecond)
}

func (f *Feed) queueBlock(name string) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.leads() {
		f.blocks.Add(request(name))
	}
}

func (f *Feed) allNodes() {
	f.mu.RLock()
	names := make([]string, 0, len(f.names))
	for name := range f.names {
		names = append(names, name)
	}
	f.mu.RUnlock()
	f.QueueNodes(slices.Concat(names, f.Ledger.Nodes(), f.Ledger.CiliumNodes()))
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func (f *Feed) blockHandler(logger logr.Logger) toolscache.ResourceEventHandler {
	read := func(obj *v1alpha1.PodIPBlock) (crd.Block, bool) {
		b, err := crd.BlockFrom(obj)
		if err != nil {
			logger.Error(err, "a block cannot be read; fix or delete it", "block", obj.Name)
		}
		return b, b.CIDR.IsValid()
	}
	return handle(
		func(obj *v1alpha1.PodIPBlock) {
			if b, ok := read(obj); ok {
				f.Ledger.Upsert(b)
				f.blockMoved(b)
			}
		},
		func(obj *v1alpha1.PodIPBlock) {
			if b, ok := read(obj); ok {
				f.Ledger.Remove(b)
				f.blockMoved(b)
				f.forgetGone(b.Node)
			}
		})
}

// Changed queues pools whose free blocks have changed, and the nodes that wait for
// blocks of a pool with newly freed ones.
func (f *Feed) Changed(freed, taken []netip.Prefix) {
	changed := f.Pools.Touching(taken)
	for _, family := range ipalloc.Families() {
		other := func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) != family }
		pools := f.Pools.Touching(slices.DeleteFunc(slices.Clone(freed), other))
		for _, node := range f.Awaiting.Wake(family, pools) {
			f.mu.RLock()
			f.nodes.AddAfter(request(node), wakeDelay)
			f.mu.RUnlock()
		}
		changed = append(changed, pools...)
	}
	for _, name := range changed {
		f.queuePoolStatus(name)
	}
}

func (f *Feed) blockMoved(b crd.Block) {
	f.excludeCiliumNode(b.Node)
	f.queueNode(b.Node, b.Phase != ipalloc.InService)
	f.queuePoolStatus(b.Pool)
	f.queueBlock(b.Name)
	for _, other := range f.Ledger.Overlaps(b.CIDR) {
		f.QueueNode(other.Owner.Node)
		f.queueBlock(crd.BlockName(other.CIDR))
	}
}

func (f *Feed) ciliumNode(cn *ciliumnode.View) {
	f.Ledger.UpsertCiliumNode(cn)
	f.excludeCiliumNode(cn.Name)
	f.queueNode(cn.Name, cn.Answers())
}

func (f *Feed) ciliumNodeGone(cn *ciliumnode.View) {
	f.Ledger.RemoveCiliumNode(cn)
	f.excludeCiliumNode(cn.Name)
	f.QueueNode(cn.Name)
	f.forgetGone(cn.Name)
}

func (f *Feed) pool(p *v1alpha1.PodIPPool) {
	if f.Pools.Set(p) {
		f.allNodes()
		f.AllPools()
		f.allCiliumPools()
		return
	}
	// Our own status writes come back here: without the delay they would trigger the
	// next write at once while blocks come and go.
	f.queuePoolStatus(p.Name)
}

// Reconfigured queues every node and pool, as Cilium's configuration changed.
func (f *Feed) Reconfigured() {
	f.allNodes()
	f.AllPools()
}

// AllPools queues every pool, as something changed that concerns all of them.
func (f *Feed) AllPools() {
	for _, name := range f.Pools.Names() {
		f.queuePool(name, 0)
	}
}

func (f *Feed) poolGone(p *v1alpha1.PodIPPool) {
	f.Pools.Delete(p.Name)
	f.allNodes()
	f.AllPools()
	f.allCiliumPools()
	f.queuePool(p.Name, 0)
}

func (f *Feed) node(n *corev1.Node) {
	f.exclude(exclude.Node, n.Name, exclude.OfNode(n))
	starves := state.Starves(n)
	f.mu.Lock()
	was := f.names[n.Name]
	f.names[n.Name] = starves
	f.mu.Unlock()
	f.QueueNode(n.Name)
	if starves != was {
		f.queuePoolsOf(n)
	}
}

// queuePoolsOf has the pools of a Node report whether their nodes are served.
func (f *Feed) queuePoolsOf(n *corev1.Node) {
	for _, pool := range f.Pools.Match(labels.Set(n.Labels)) {
		f.queuePoolStatus(pool.Name)
	}
}

func (f *Feed) nodeGone(n *corev1.Node) {
	f.exclude(exclude.Node, n.Name, nil)
	f.mu.Lock()
	starved := f.names[n.Name]
	delete(f.names, n.Name)
	f.mu.Unlock()
	f.QueueNode(n.Name)
	if starved {
		f.queuePoolsOf(n)
	}
	f.forgetGone(n.Name)
}
