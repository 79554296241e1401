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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
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

// usedDelay batches agents' reports about the addresses of a pool: most of them change no status.
const usedDelay = time.Minute

// wakeDelay batches freed blocks into one reconcile of each node short of addresses.
const wakeDelay = 200 * time.Millisecond

// assignDelay batches pods that the scheduler finds no addresses for into one assignment
// of all of them to nodes, and reassignDelay all else that changes while some wait.
const (
	assignDelay   = 50 * time.Millisecond
	reassignDelay = 500 * time.Millisecond
)

// allPods is the request that stands for all pods.
const allPods = "pods"

// Feed first updates the ledger and the other stores from the watches, and only then queues the
// affected objects, so that no decision is made on less than the event that queued it.
type Feed struct {
	Queues
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
	// Routes store FRRConfigurations; nil: not watched.
	Routes *state.FRRConfigurations
	// Mode selects how CiliumNodes are read.
	Mode ciliumnode.Mode
	// Awaiting are the nodes to reconcile when addresses of their pools come free.
	Awaiting *state.Awaiting
	Now      func() time.Time
	// Await returns once the API server serves all watched kinds. Nil: it does.
	Await func(context.Context) error

	mu        sync.RWMutex
	names     map[string]bool // all Nodes; true: it starves
	services  services
	endpoints services
}

// Sources are listed and watched by reflectors.
type Sources struct {
	Pods, Unscheduled, Agents, CiliumNodes toolscache.ListerWatcher
	// CiliumPools are CiliumPodIPPools, and HasCiliumPools reports whether the API
	// server serves the kind. Nil: not watched.
	CiliumPools    toolscache.ListerWatcher
	HasCiliumPools func() (bool, error)
	// FRRConfigurations are those in the namespace of frr-k8s, and HasFRRConfigurations reports whether
	// the API server serves the kind. Nil: not watched.
	FRRConfigurations    toolscache.ListerWatcher
	HasFRRConfigurations func() (bool, error)
	// Services are all Services. Nil: not watched.
	Services toolscache.ListerWatcher
	// Endpoints are the EndpointSlices of the API server. Nil: not watched. APIServer is the address or
	// name that the operator dials. "": unknown.
	Endpoints toolscache.ListerWatcher
	APIServer string
	// HasServiceCIDRs reports whether the API server serves ServiceCIDRs (Kubernetes
	// 1.33), and HasLoadBalancerPools whether it serves CiliumLoadBalancerIPPools. Nil: not
	// watched.
	HasServiceCIDRs, HasLoadBalancerPools func() (bool, error)
}

// NewFeed returns an empty Feed.
func NewFeed() *Feed {
	return &Feed{
		Queues: Queues{connected: make(chan struct{}), order: newOrder()},
		names:  map[string]bool{}, services: services{uids: map[string]types.UID{}}, endpoints: services{uids: map[string]types.UID{}},
	}
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
	synced, optional, err := beginWatches(ctx, f, logger, &reflectors)
	if err != nil {
		return err
	}
	if !toolscache.WaitFor(ctx, "", synced...) {
		return nil
	}
	waitForOptional(ctx, optional)
	f.Begin()
	logger.Info("everything has been read; decisions begin")
	select {
	case <-f.Elected:
		f.Agents.Inherit()
		f.queueAll()
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// beginWatches begins all watches, and returns checks of their initial lists:
// optional is closed once an optional one has been stored.
func beginWatches(ctx context.Context, f *Feed, logger logr.Logger, reflectors *sync.WaitGroup) (synced []toolscache.DoneChecker, optional []<-chan struct{}, err error) {
	for _, w := range f.Watches(logger) {
		if w.Known != nil {
			known, err := w.Known()
			if err != nil {
				return nil, nil, fmt.Errorf("asking for %T: %w", w.Object, err)
			}
			if known && w.Optional {
				optional = append(optional, w.untilFound())
			}
			if !known || w.Optional {
				reflectors.Go(func() { w.later(ctx, logger, f.Cache) })
				continue
			}
			if w.Found != nil {
				w.Found()
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

// Begin lets decisions begin: all initial lists have been stored.
func (f *Feed) Begin() {
	f.Ledger.SetReady()
	f.allNodes()
	f.allCiliumPools()
	allRoutes(f)
}

// queueAll queues all objects, because a standby has queued none.
func (f *Feed) queueAll() {
	f.allChanged()
	for _, cidr := range f.Ledger.CIDRs() {
		f.add(BlockQueue, crd.BlockName(cidr), 0)
	}
	for _, node := range f.Ledger.Nodes() {
		queuePublished(&f.Queues, f.Ledger, node)
	}
	allRoutes(f)
	f.Reassign()
}

// NeedLeaderElection is false: a standby keeps its caches warm.
func (f *Feed) NeedLeaderElection() bool { return false }

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

// queuePoolStatus has the status of a pool written once more changes have come together.
func (f *Feed) queuePoolStatus(name string) {
	f.add(PoolQueue, name, statusDelay(f.Ledger.Size(name)))
}

func statusDelay(blocks int) time.Duration {
	return min(maxStatusDelay, minStatusDelay+time.Duration(blocks)*time.Second/blocksPerSecond)
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

// QueueNode has a node reconciled, and unscheduled pods assigned anew while some wait.
func (f *Feed) QueueNode(name string) {
	if name == "" {
		return
	}
	f.add(NodeQueue, name, 0)
	if f.Unscheduled != nil && f.Unscheduled.Any() {
		f.add(UnscheduledQueue, allPods, reassignDelay)
	}
}

// QueueNodes has nodes reconciled.
func (f *Feed) QueueNodes(names []string) {
	for _, name := range names {
		f.QueueNode(name)
	}
}

// queueNode has a node reconciled, on request before nodes that are queued otherwise.
func (f *Feed) queueNode(name string, first bool) {
	if first && f.leads() {
		f.order.addFirst(request(name))
	}
	f.QueueNode(name)
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

// Changed queues pools whose free blocks or addresses in use have changed, and the nodes that wait
// for blocks of a pool with newly freed ones.
func (f *Feed) Changed(freed, taken []netip.Prefix, used []string) {
	changed := f.Pools.Touching(taken)
	for _, cidr := range slices.Concat(freed, taken) {
		queuePinsIn(f, cidr)
	}
	for _, family := range ipalloc.Families() {
		other := func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) != family }
		pools := f.Pools.Touching(slices.DeleteFunc(slices.Clone(freed), other))
		for _, node := range f.Awaiting.Wake(family, pools) {
			f.add(NodeQueue, node, wakeDelay)
		}
		changed = append(changed, pools...)
	}
	for _, name := range changed {
		f.queuePoolStatus(name)
	}
	if len(freed) > 0 {
		queueKeeper(f)
	}
	for _, name := range used {
		f.add(PoolQueue, name, usedDelay)
	}
}

func (f *Feed) blockMoved(b crd.Block) {
	f.excludeCiliumNode(b.Node)
	queuePublished(&f.Queues, f.Ledger, b.Node)
	queueRoutes(f, b.Node)
	f.queueNode(b.Node, b.Phase != ipalloc.InService)
	f.queuePoolStatus(b.Pool)
	f.add(BlockQueue, b.Name, 0)
	queuePinsIn(f, b.CIDR)
	for _, other := range f.Ledger.Overlaps(b.CIDR) {
		f.QueueNode(other.Owner.Node)
		f.add(BlockQueue, crd.BlockName(other.CIDR), 0)
	}
}

func (f *Feed) ciliumNode(cn *ciliumnode.View) {
	f.Ledger.UpsertCiliumNode(cn)
	f.excludeCiliumNode(cn.Name)
	queuePublished(&f.Queues, f.Ledger, cn.Name)
	queueCooling(f, cn.Name)
	f.queueNode(cn.Name, cn.Answers())
}

func (f *Feed) ciliumNodeGone(cn *ciliumnode.View) {
	f.Ledger.RemoveCiliumNode(cn)
	f.excludeCiliumNode(cn.Name)
	queuePublished(&f.Queues, f.Ledger, cn.Name)
	queueCooling(f, cn.Name)
	f.QueueNode(cn.Name)
	f.forgetGone(cn.Name)
}

func (f *Feed) pool(p *v1alpha1.PodIPPool) {
	if f.Pools.Set(p) {
		f.allChanged()
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

// allChanged queues everything that depends on the specs of pools.
func (f *Feed) allChanged() {
	f.Reconfigured()
	f.allCiliumPools()
	f.queuePins(f.Ledger.Pins())
}

func (f *Feed) queuePins(blocks []netip.Prefix) {
	for _, cidr := range blocks {
		f.add(PinQueue, crd.BlockName(cidr), 0)
	}
}

// AllPools queues every pool, as something changed that concerns all of them.
func (f *Feed) AllPools() {
	for _, name := range f.Pools.Names() {
		f.add(PoolQueue, name, 0)
	}
}

func (f *Feed) poolGone(p *v1alpha1.PodIPPool) {
	f.Pools.Delete(p.Name)
	f.allChanged()
	f.add(PoolQueue, p.Name, 0)
}

func (f *Feed) node(n *corev1.Node) {
	starves := state.Starves(n)
	f.mu.Lock()
	starved := f.names[n.Name]
	f.names[n.Name] = starves
	f.mu.Unlock()
	hostnameMoved(f, n.Name, n)
	assigned, asked := exclude.OfNode(n)
	f.ask(exclude.Node, n.Name, n.CreationTimestamp.Time, asked)
	f.nodeMoved(n, assigned, starves != starved)
}

func (f *Feed) nodeGone(n *corev1.Node) {
	f.mu.Lock()
	starved := f.names[n.Name]
	delete(f.names, n.Name)
	f.mu.Unlock()
	hostnameMoved(f, n.Name, nil)
	f.ask(exclude.Node, n.Name, time.Time{}, nil)
	f.nodeMoved(n, nil, starved)
	f.forgetGone(n.Name)
}

// nodeMoved queues a Node, and its pools if they have to report anew whether their nodes are served.
func (f *Feed) nodeMoved(n *corev1.Node, addresses []netip.Prefix, news bool) {
	f.exclude(exclude.Node, n.Name, addresses)
	f.excludeCiliumNode(n.Name)
	f.QueueNode(n.Name)
	queueRoutes(f, n.Name)
	f.queuePins(f.Ledger.PinsOf(n.Name))
	if news {
		for _, pool := range f.Pools.Match(labels.Set(n.Labels)) {
			f.queuePoolStatus(pool.Name)
		}
	}
}
