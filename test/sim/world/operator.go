package world

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// The controllers.
const (
	nodes = iota
	pools
	blocks
	pins
	published
	ciliumPools // of multi-pool mode, as is
	keeper
	unscheduled // with a scheduler
	controllers
)

func controllerName(c int) string {
	return [...]string{"node", "pool", "block", "pin", "published", "ciliumpool", "keeper", "unscheduled"}[c]
}

// Operator is one process of the operator, or none while it is down.
type Operator struct {
	w    *World
	name string

	up, leads bool
	// frozen: the process is stopped (SIGSTOP), with any write in hand.
	frozen bool
	runs   int
	// skew is the error of its clock.
	skew     time.Duration
	settings config.Settings

	parts *controller.Operator
	// recovery holds back changes after a restore of etcd.
	recovery *state.Recovery
	streams  []*stream
	queues   [controllers]*queue
	begun    bool // it has read everything
	flights  []*flight
	current  *flight
	// unknownClaims are its claims that were carried out and never answered, by block, until it knows
	// of the block.
	unknownClaims map[string]unknownClaim
	// heard are the versions of CiliumNodes that it has written and received a response for, by
	// name, until its cache has these or later ones.
	acked map[string]string
	// cluster is its knowledge of the cluster's own addresses in the pools' ranges.
	cluster *knownCluster
	// agents are the agents' pods that it has received.
	agents *knownAgents
	// moves are the nodes that it allowed to move off a pool, by block.
	moves map[types.UID]string
}

// flight is a reconcile in progress.
type flight struct {
	controller int
	name       string
	pending    *call
	// The process's knowledge of the node when it began: the addresses that pods' statuses name,
	// and whether the agent was settled, then or at any later step.
	pods    map[netip.Addr]bool
	settled bool
	since   time.Time // when it came to the call it waits at
	// The addresses that it knew to be marked, if the agent was not settled.
	marked []netip.Addr
	// awaited are the pods, by family, with an address that it could not know.
	awaited        [2][]string
	familyDisabled [2]bool // the families that it has known the agent not to run, since it began
	called         bool    // it has come to a call
	early          bool    // it began before it may decide
	assigned       bool    // the node's CiliumNode assigned addresses, as far as the process knew when it began
	// others are the blocks that it has read live and that were not the objects it knew.
	others []string
	// found is the block that its last claim found in place, and that it reads next.
	found string
	// changed are the blocks that it has read live and that were in another phase than the one
	// it decided on; it leaves them for its next turn.
	changed []netip.Prefix

	// foundNone: when it last read the node's CiliumNode live, there was none.
	foundNone bool

	knew map[netip.Prefix]crd.Block // the node's blocks that it decides on
	// awaits is the Node with labels that, as it knew when it began, are not final.
	awaits types.UID
	// stays are the pools off which it may not move the Node, as far as it knew when it began.
	stays map[string]bool
	// serves is which Cilium pool each PodIPPool serves, as far as it knew when it began.
	serves  map[string]string
	cluster []netip.Prefix // the cluster's own addresses that it has known ever since it began
	// needed: a PodIPPool serves, or a node lists, the CiliumPodIPPool that it is about to
	// delete, and it may know that.
	needed bool

	code   coroutine
	result reconcile.Result
	err    error
}

func (f *flight) String() string { return controllerName(f.controller) + "/" + f.name }

// start starts a process before its first read. Its first lists return the state of some versions
// ago, which an API server's cache may serve.
func (o *Operator) start(versionsAgo int) {
	o.up, o.leads, o.frozen, o.begun = true, false, false, false
	o.runs++
	if o.w.cfg.Skew > 0 { // in whole seconds, either way
		seconds := int(o.w.cfg.Skew / time.Second)
		o.skew = time.Duration(o.w.pick(o.name, uint64(o.runs), 2*seconds+1)-seconds) * time.Second
	}
	o.flights, o.current, o.unknownClaims, o.acked, o.moves = nil, nil, nil, nil, nil
	o.cluster, o.agents = newKnownCluster(o.w.cfg.Cluster), newKnownAgents(o)
	o.recovery = &state.Recovery{}
	s := o.settings
	s.Registry = prometheus.NewRegistry()
	parts, err := controller.New(controller.Environment{
		Cache: caches{o}, Live: live{caller: o}, Client: live{caller: o}, Recorder: silent{}, Clock: processClock{o}, Recovery: o.recovery,
	}, s)
	if err != nil {
		panic(err)
	}
	o.parts = parts
	parts.Node.Cluster.Cilium.Set(&ciliumconfig.Config{Known: true})
	parts.Node.Blocks.WaitForCache = o.waitForCache
	for c := range o.queues {
		o.queues[c] = newQueue(o.w.Now)
	}
	sources := [controllers]source.Source{
		nodes: parts.Feed.Source(informer.NodeQueue), pools: parts.Feed.Source(informer.PoolQueue),
		blocks: parts.Feed.Source(informer.BlockQueue), pins: parts.Feed.Source(informer.PinQueue),
		published: parts.Feed.Source(informer.PublishedQueue),
	}
	if o.w.cfg.Asking != nil {
		parts.Feed.From.CiliumPools = &toolscache.ListWatch{} // the world itself lists and watches
		sources[ciliumPools] = parts.Feed.Source(informer.CiliumPoolQueue)
		if o.w.whole() {
			sources[keeper] = parts.Feed.Source(informer.KeeperQueue)
		}
	}
	if o.w.sched != nil {
		parts.Node.OfferFamilies = s.OfferFamilies
		parts.Feed.From.Unscheduled = &toolscache.ListWatch{}
		sources[unscheduled] = parts.Feed.Source(informer.UnscheduledQueue)
	}
	if o.w.cfg.Cluster != nil {
		parts.Feed.From.HasServiceCIDRs = func() (bool, error) { return true, nil }
	}
	ctx := context.Background()
	for c, source := range sources {
		if source == nil {
			continue
		}
		if err := source.Start(ctx, o.queues[c]); err != nil {
			panic(err)
		}
	}
	o.watch(versionsAgo)
}

func (o *Operator) watch(versionsAgo int) {
	o.streams = nil
	for _, watch := range o.parts.Feed.Watches(logr.Discard()) {
		kind := kindOf(watch.Object)
		if kind == KindNamespace && o.w.cfg.Asking == nil {
			continue // no pod requests a pool
		}
		s := &stream{name: kind.String(), kind: kind, handler: watch.Handler, store: watch.Store, strip: o.w.strips[kind], wants: everything, cluster: o.cluster}
		switch {
		case watch.Agents:
			s.name, s.wants, s.agents = "Agent", isAgent, o.agents
		case kind == KindNode && watch.Store != nil:
			s.name, s.cluster = "Carrier", nil // in a CiliumNode's place: it is read for the podCIDR alone
		case kind == KindPod && watch.From != nil && watch.From == o.parts.Feed.From.Unscheduled:
			s.name, s.wants = "Unscheduled", isUnscheduled
		case kind == KindPod:
			s.wants = needsAddress
		case kind == KindCiliumPool:
			o.parts.Feed.CiliumPools.SetKnown()
		}
		s.cache = map[string]client.Object{}
		if s.name == KindPod.String() {
			s.later = true
			s.versionsAgo = versionsAgo
		} else {
			s.begin(o.w.api, versionsAgo)
		}
		o.streams = append(o.streams, s)
	}
	o.settle()
}

// settle allows claims of first blocks once everything but pods has been read, and all decisions once pods have been.
func (o *Operator) settle() {
	pods := o.stream(KindPod.String())
	if pods.later && !slices.ContainsFunc(o.streams, func(s *stream) bool { return s != pods && !s.synced() }) {
		o.parts.Feed.Ledger.SetClaimable()
		pods.begin(o.w.api, pods.versionsAgo)
	}
	if !o.begun && pods.synced() {
		o.begun = true
		o.parts.Feed.Begin()
	}
}

// crash ends the process, wherever it is.
func (o *Operator) crash() {
	if o.w.refinement != nil {
		o.w.refinement.dies(o)
	}
	for _, f := range o.flights {
		f.code.stop()
	}
	o.up, o.leads, o.frozen, o.begun = false, false, false, false
	o.flights, o.current, o.unknownClaims, o.acked, o.parts, o.streams = nil, nil, nil, nil, nil, nil
	o.queues, o.cluster, o.agents = [controllers]*queue{}, nil, nil
}

func (o *Operator) running() bool { return o.up && !o.frozen }

// workers returns the number of concurrent reconciles of a controller.
func (o *Operator) workers(c int) int {
	switch c {
	case nodes:
		return o.settings.NodeWorkers
	case pools:
		return min(2, controller.PoolWorkers) // two interleave in every way that more do
	}
	return 1
}

func (o *Operator) busy(c int) int {
	n := 0
	for _, f := range o.flights {
		if f.controller == c {
			n++
		}
	}
	return n
}

// reconcile begins a reconcile of a name and runs it to the first call.
func (o *Operator) reconcile(c int, name string) {
	o.queues[c].take(name)
	f := &flight{controller: c, name: name, early: !o.mayDecide(c)}
	if c == nodes {
		f.know(o)
	}
	if o.w.refinement != nil {
		o.w.refinement.begins(o, f)
	}
	f.code.begin(func() { f.result, f.err = o.reconciler(c).Reconcile(o.within(f), request(name)) })
	o.flights = append(o.flights, f)
	o.resume(f)
}

// within returns the context of a reconcile. A reconcile that begins early would wait; here it
// has to end, and begins once more.
func (o *Operator) within(f *flight) context.Context {
	ctx := o.w.processes.logTo(o, f)
	if o.mayDecide(f.controller) {
		return ctx
	}
	over, end := context.WithCancel(ctx)
	end()
	return over
}

func (f *flight) know(o *Operator) {
	f.settled, f.familyDisabled = o.agents.settled(f.name), o.familyDisabled(f.name)
	f.awaits, f.stays, f.cluster = o.awaitsLabels(f.name), o.stays(f.name), o.cluster.all()
	f.knowWindow(o)
	f.serves = o.serves()
	view := o.parts.Node.Cluster.Ledger.CiliumNode(f.name)
	f.assigned = view != nil && !view.AssignsNone()
	for _, pod := range o.parts.Node.Cluster.Pods.On(f.name) {
		for _, addr := range pod.IPs {
			if f.pods == nil {
				f.pods = map[netip.Addr]bool{}
			}
			f.pods[addr] = true
		}
	}
}

func (o *Operator) reconciler(c int) reconcile.Reconciler {
	switch c {
	case nodes:
		return o.parts.Node
	case pools:
		return o.parts.Pool
	case pins:
		return o.parts.Pin
	case published:
		return o.parts.Publisher
	case ciliumPools:
		return o.parts.CiliumPool
	case keeper:
		return o.parts.Keeper
	case unscheduled:
		return o.parts.Unscheduled
	}
	return o.parts.Block
}

// resume runs a reconcile to its next call, or to its end.
func (o *Operator) resume(f *flight) {
	o.current = f
	if f.controller == nodes { // it observes again after a repair
		f.settled = f.settled || o.agents.settled(f.name)
		f.stillNotRun(o)
	}
	c, more := f.code.next()
	o.current = nil
	if more {
		// Blocks that the watch delivers while others are read were not decided on.
		if f.controller == nodes && !f.pending.readsBlock() {
			f.knew = map[netip.Prefix]crd.Block{}
			for _, b := range o.parts.Node.Cluster.Ledger.NodeBlocks(f.name) {
				f.knew[b.CIDR] = b
			}
		}
		if c.verb == "delete" && c.kind == KindCiliumPool {
			f.needed = o.w.isServed(c.key) || len(o.parts.Node.Cluster.Ledger.ListedFor(c.key)) > 0
		}
		f.pending, f.since, f.called = c, o.w.clock.now, true
		return
	}
	if f.early && !f.called {
		o.queues[f.controller].done(f.name, reconcile.Result{}, nil)
		o.queues[f.controller].Add(request(f.name))
		o.flights = deleted(o.flights, f)
		return
	}
	o.leaveMarks(f)
	o.flights = deleted(o.flights, f)
	o.w.tracef("%s %s: reconciled, again after %s, error %v", o.name, f, f.result.RequeueAfter, f.err)
	o.queues[f.controller].done(f.name, f.result, f.err)
}

func (o *Operator) flight(name string) *flight {
	for _, f := range o.flights {
		if f.String() == name {
			return f
		}
	}
	return nil
}

// claims reports whether a process is about to create a block.
func (o *Operator) claims(name string) bool {
	return slices.ContainsFunc(o.flights, func(f *flight) bool {
		return f.pending != nil && f.pending.verb == "create" && f.pending.kind == KindBlock && f.pending.key == name
	})
}

func (o *Operator) stream(name string) *stream {
	for _, s := range o.streams {
		if s.name == name {
			return s
		}
	}
	return nil
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// processClock is an operator's clock.
type processClock struct{ o *Operator }

// Now implements clock.PassiveClock.
func (c processClock) Now() time.Time { return c.o.w.clock.now.Add(c.o.skew) }

// Since implements clock.PassiveClock.
func (c processClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// silent discards events.
type silent struct{}

// Eventf implements events.EventRecorder.
func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func stripsOf() map[Kind]toolscache.TransformFunc {
	options := informer.CacheOptions()
	strips := map[Kind]toolscache.TransformFunc{}
	for _, obj := range []client.Object{&v1alpha1.PodIPPool{}, &v1alpha1.PodIPBlock{}, &v1alpha1.PodIPPin{}, &networkingv1.ServiceCIDR{}} {
		strips[kindOf(obj)] = options.DefaultTransform
	}
	for obj, by := range options.ByObject {
		strips[kindOf(obj)] = by.Transform
	}
	return strips
}
