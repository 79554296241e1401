package informer

import (
	"context"
	"maps"
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

// usedDelay batches agents' reports about the addresses of a pool, which an agent sends every 15 s at most.
const usedDelay = 15 * time.Second

// wakeDelay batches freed blocks into one reconcile of each node short of addresses.
const wakeDelay = 200 * time.Millisecond

// assignDelay batches pods that the scheduler finds no addresses for into one assignment
// of all of them to nodes, and reassignDelay all else that changes while some wait.
const (
	assignDelay   = 50 * time.Millisecond
	reassignDelay = 500 * time.Millisecond
)

// withdrawnDelay is the time until a block reports that its CiliumNode no longer has it. A block that
// its agent returned cools down sooner, and a CiliumNode that was deleted is back.
const withdrawnDelay = 10 * time.Second

// routeDelay batches the blocks that a node gets at once: the reconcile that publishes their addresses
// usually writes their routes before it is over.
const routeDelay = 500 * time.Millisecond

// allPods is the request that stands for all pods.
const allPods = "pods"

// Feed first updates the ledger and the other stores from the watches, and only then queues the
// affected objects (events.go), so that no decision is made on less than the event that queued it.
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
	// WaitForKinds returns once the API server serves all watched kinds. Nil: it does.
	WaitForKinds func(context.Context) error

	mu        sync.RWMutex
	nodes     map[string]nodeFacts // all Nodes
	services  services
	endpoints services
}

// nodeFacts are the facts of a Node that statuses of pools depend on.
type nodeFacts struct {
	labels  labels.Set
	starves bool
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
		nodes:  map[string]nodeFacts{}, services: services{uids: map[string]types.UID{}}, endpoints: services{uids: map[string]types.UID{}},
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
	if f.WaitForKinds != nil {
		if err := f.WaitForKinds(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	var reflectors sync.WaitGroup
	defer reflectors.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := f.read(ctx, f.claimWatches(logger), &reflectors); err != nil || ctx.Err() != nil {
		return err
	}
	f.Ledger.SetClaimable()
	logger.Info("all but pods have been read; first blocks may be claimed")
	if err := f.read(ctx, []Watch{f.podWatch()}, &reflectors); err != nil || ctx.Err() != nil {
		return err
	}
	f.Begin()
	logger.Info("everything has been read; decisions begin")
	select {
	case <-f.Elected:
		f.Agents.Inherit()
		f.elected()
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// Begin lets decisions begin: all initial lists have been stored.
func (f *Feed) Begin() {
	f.Ledger.SetReady()
	f.wake(operatorBegun, subject{})
}

// elected queues all objects, because a standby has queued none.
func (f *Feed) elected() { f.wake(operatorElected, subject{nodes: f.Ledger.Nodes()}) }

// NeedLeaderElection is false: a standby keeps its caches warm.
func (f *Feed) NeedLeaderElection() bool { return false }

// forgetGone drops the last state of a deleted CiliumNode on a standby, if its Node is gone
// too and no block is left. The leader does so when it reconciles the node: a response to
// one of its writes may still be under way.
func (f *Feed) forgetGone(node string) {
	f.mu.RLock()
	_, exists := f.nodes[node]
	f.mu.RUnlock()
	if !exists && f.Ledger.Ready() && !f.leads() && len(f.Ledger.NodeBlocks(node)) == 0 {
		f.Ledger.ForgetCiliumNode(node)
	}
}

// nodeNames returns the names of all Nodes.
func (f *Feed) nodeNames() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Collect(maps.Keys(f.nodes))
}

// QueueNode has a node reconciled, and unscheduled pods assigned anew while some wait.
func (f *Feed) QueueNode(name string) {
	if name == "" {
		return
	}
	f.add(NodeQueue, name, 0)
	for _, key := range (subject{}).anyUnscheduled(f) {
		f.add(UnscheduledQueue, key, reassignDelay)
	}
}

// prefer has a node that is queued next reconciled before nodes that are queued otherwise.
func (f *Feed) prefer(node string) {
	if f.leads() {
		f.order.addFirst(request(node))
	}
}

// QueueNodes has nodes reconciled.
func (f *Feed) QueueNodes(names []string) {
	for _, name := range names {
		f.QueueNode(name)
	}
}

// Reassign has all unscheduled pods assigned anew, and blocks found for nodes without any.
func (f *Feed) Reassign() { f.wake(podScheduled, subject{}) }

// Reconfigured queues every node and pool, as Cilium's configuration changed.
func (f *Feed) Reconfigured() { f.wake(configChanged, subject{}) }

// SpaceChanged queues pools whose free blocks or addresses in use have changed, and the nodes that wait
// for blocks of a pool with newly freed ones, or whose blocks a CiliumNode contests.
func (f *Feed) SpaceChanged(freed, taken, contested []netip.Prefix, used []string) {
	var nodes []string
	changed := f.Pools.Touching(taken)
	for _, family := range ipalloc.Families() {
		isOther := func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) != family }
		pools := f.Pools.Touching(slices.DeleteFunc(slices.Clone(freed), isOther))
		nodes = append(nodes, f.Awaiting.Wake(family, pools)...)
		changed = append(changed, pools...)
	}
	f.wake(spaceChanged, subject{cidrs: slices.Concat(freed, taken), nodes: nodes, pools: changed})
	if len(freed) > 0 {
		f.wake(spaceFreed, subject{})
	}
	f.wake(contestChanged, subject{cidrs: contested})
	f.wake(usageChanged, subject{pools: used})
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
				f.onBlock(b)
			}
		},
		func(obj *v1alpha1.PodIPBlock) {
			if b, ok := read(obj); ok {
				f.Ledger.Remove(b)
				f.onBlock(b)
				f.forgetGone(b.Node)
			}
		})
}

func (f *Feed) onBlock(b crd.Block) {
	excluded := f.excludeCiliumNode(b.Node)
	if b.Phase != ipalloc.InService {
		f.prefer(b.Node)
	}
	f.wake(blockChanged, subject{
		name: b.Name, nodes: []string{b.Node}, pools: []string{b.Pool}, cidrs: []netip.Prefix{b.CIDR}, excluded: excluded,
	})
}

func (f *Feed) pinHandler(logger logr.Logger) toolscache.ResourceEventHandler {
	read := func(obj *v1alpha1.PodIPPin) (crd.Pin, bool) {
		pin, err := crd.PinFrom(obj)
		if err != nil {
			logger.Error(err, "a pin cannot be read; fix or delete it", "pin", obj.Name)
		}
		return pin, err == nil
	}
	return handle(
		func(obj *v1alpha1.PodIPPin) {
			if pin, ok := read(obj); ok {
				if old := f.Ledger.Pins.Set(pin); old != pin.For() {
					_, key, _ := crd.SplitOwner(pin.Owner)
					f.Pods.OwnBy(key)
					f.wake(pinOwnerChanged, subject{nodes: append(f.nodesOf(old), f.nodesOf(pin.For())...), owner: pin.Owner})
				}
				f.wake(pinChanged, subject{name: obj.Name})
			}
		},
		func(obj *v1alpha1.PodIPPin) {
			if pin, ok := read(obj); ok {
				f.Ledger.Pins.Remove(pin.CIDR)
				f.wake(pinOwnerChanged, subject{nodes: f.nodesOf(pin.For()), owner: pin.Owner})
				f.wake(pinDeleted, subject{})
			}
		})
}

func (f *Feed) onCiliumNode(cn *ciliumnode.View) {
	f.Ledger.UpsertCiliumNode(cn)
	excluded := f.excludeCiliumNode(cn.Name)
	if cn.Answers() {
		f.prefer(cn.Name)
	}
	f.wake(ciliumNodeChanged, subject{nodes: []string{cn.Name}, excluded: excluded})
}

func (f *Feed) onCiliumNodeGone(cn *ciliumnode.View) {
	f.Ledger.RemoveCiliumNode(cn)
	excluded := f.excludeCiliumNode(cn.Name)
	f.wake(ciliumNodeChanged, subject{nodes: []string{cn.Name}, excluded: excluded})
	f.forgetGone(cn.Name)
}

func (f *Feed) onPool(p *v1alpha1.PodIPPool) {
	if rule := p.Spec.PodAddresses; rule != nil {
		f.Pods.OwnBy(rule.OwnerLabel)
	}
	if f.Pools.Set(p) {
		f.wake(poolSpecChanged, subject{})
		return
	}
	f.wake(poolStatusChanged, subject{name: p.Name})
}

func (f *Feed) onPoolGone(p *v1alpha1.PodIPPool) {
	f.Pools.Delete(p.Name)
	f.wake(poolSpecChanged, subject{})
	f.wake(poolDeleted, subject{name: p.Name})
}

func (f *Feed) onNode(n *corev1.Node) {
	facts := nodeFacts{labels: n.Labels, starves: state.Starves(n)}
	f.mu.Lock()
	old, known := f.nodes[n.Name]
	f.nodes[n.Name] = facts
	f.mu.Unlock()
	pools := f.poolsOf(n.Labels)
	if known {
		pools = f.changedPools(old, facts)
	}
	hostname := f.setHostname(n.Name, n)
	assigned, requested := exclude.OfNode(n)
	f.ask(exclude.Node, n.Name, n.CreationTimestamp.Time, requested)
	f.wake(nodeChanged, f.excludeNode(n, hostname, assigned, pools))
}

func (f *Feed) onNodeGone(n *corev1.Node) {
	f.mu.Lock()
	delete(f.nodes, n.Name)
	f.mu.Unlock()
	hostname := f.setHostname(n.Name, nil)
	f.ask(exclude.Node, n.Name, time.Time{}, nil)
	f.wake(nodeChanged, f.excludeNode(n, hostname, nil, f.poolsOf(n.Labels)))
	f.forgetGone(n.Name)
}

// setHostname records the hostname of a Node; nil: it is gone. It returns the other nodes concerned.
func (f *Feed) setHostname(name string, node *corev1.Node) []string {
	if f.Routes == nil {
		return nil
	}
	return f.Routes.SetNode(name, node)
}

// changedPools returns the pools with a status that a change of a Node concerns: another number of selected
// nodes, or of nodes that starve.
func (f *Feed) changedPools(old, facts nodeFacts) []string {
	if maps.Equal(old.labels, facts.labels) {
		if old.starves == facts.starves {
			return nil
		}
		return f.poolsOf(facts.labels)
	}
	return append(f.poolsOf(old.labels), f.poolsOf(facts.labels)...)
}

// poolsOf returns the names of the pools that select a Node with these labels.
func (f *Feed) poolsOf(nodeLabels labels.Set) []string {
	var names []string
	for _, pool := range f.Pools.Match(nodeLabels) {
		names = append(names, pool.Name)
	}
	return names
}

// excludeNode records the addresses of a Node, and returns the event of its change, with the pools that have to
// report anew.
func (f *Feed) excludeNode(n *corev1.Node, hostname []string, addresses []netip.Prefix, pools []string) subject {
	excluded := f.exclude(exclude.Node, n.Name, addresses)
	return subject{nodes: []string{n.Name}, sameHostname: hostname, pools: pools, excluded: append(excluded, f.excludeCiliumNode(n.Name)...)}
}

func (f *Feed) namespaceWants(name string, w state.PoolRequest) {
	if nodes := f.Pods.SetNamespace(name, w); len(nodes) > 0 {
		f.wake(namespaceChanged, subject{nodes: nodes})
	}
}
