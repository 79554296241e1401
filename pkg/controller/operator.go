package controller

import (
	"fmt"
	"runtime"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/block"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/node"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pacing"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pin"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/route"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/unscheduled"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Environment are how an operator reaches the API server, and its clock.
type Environment struct {
	// Cache reads from the informers, Live from the API server; Client writes.
	Cache, Live client.Reader
	Client      client.Client
	Recorder    events.EventRecorder
	Clock       clock.PassiveClock
	// Recovery holds back changes while the operator's Lease says that etcd was restored; nil: never.
	Recovery *state.Recovery
}

// Operator holds the reconcilers, and the feed that queues their work.
type Operator struct {
	Node       *node.Reconciler
	Pool       *pool.Reconciler
	Block      *block.Reconciler
	Pin        *pin.Reconciler
	Keeper     *pin.Keeper // of multi-pool mode
	Publisher  *block.Publisher
	CiliumPool *ciliumpool.Reconciler // of multi-pool mode
	// Unscheduled is for Nodes that offer addresses to the scheduler.
	Unscheduled *unscheduled.Reconciler
	// Route is for nodes whose blocks frr-k8s announces; nil: none.
	Route *route.Reconciler
	Feed  *informer.Feed

	metrics *operatorMetrics
}

// New assembles an operator without any state.
func New(c Environment, s config.Settings) (*Operator, error) {
	metrics, err := newAllMetrics(s.Registry)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	readOnly := s.Paused || s.Shadow
	metrics.own.build.WithLabelValues(s.Version, s.Commit, runtime.Version()).Set(1)
	c.Client = common.NewBreaker(c.Client, c.Clock)
	s.Defaults.WholeBlocks = s.Mode.WholeBlocks()
	s.Defaults.CiliumPools = s.Mode.ManyPools()
	pressure := state.NewPressure()
	cluster := clusterOf(c, s, pressure)
	ledger := cluster.Ledger
	feed := feedOf(c, s, &cluster, pressure)
	cluster.Awaiting.Free = cluster.FreeIn
	pace := pacing.New(s.ReclaimsPerMinute, s.ReclaimsPerMinutePerPool)
	pace.Changed = feed.QueueNodes
	recorder := event.NewRecorder(c.Recorder, c.Clock)
	o := &Operator{
		Node: &node.Reconciler{
			Cluster: cluster, Cache: c.Cache, Live: c.Live,
			CiliumNodes: &ciliumnode.Client{
				Writer: c.Client, Reader: c.Live, Mode: s.Mode, DropManagedFields: !s.KeepManagedFields, Cached: ledger.CiliumNodeAt,
			},
			Blocks: &node.BlockClient{
				Cache: c.Cache, Live: c.Live, Writer: c.Client, Ledger: ledger, Counters: metrics.counters, Clock: c.Clock,
				WaitForCache: ledger.WaitForCache,
			},
			Reporter: &node.Reporter{
				Client: c.Client, Events: recorder, Counters: metrics.counters, Clock: c.Clock,
				NodeCondition: s.NodeCondition, Cache: c.Cache, Live: c.Live, Ledger: ledger,
			},
			Pacing: pace, Pressure: pressure,
			Events: recorder, Metrics: metrics.node, Counters: metrics.counters, Clock: c.Clock, Shadow: s.Shadow,
		},
		Pool: &pool.Reconciler{
			Cache: c.Cache, Live: c.Live, Client: c.Client, Ledger: ledger, Pools: cluster.Pools, CiliumPools: cluster.CiliumPools, Cilium: cluster.Cilium,
			Pacing: pace, Pressure: pressure,
			Events: recorder, Metrics: metrics.pool, Counters: metrics.counters, Clock: c.Clock, ReadOnly: readOnly,
		},
		Block: &block.Reconciler{
			Cache: c.Cache, Client: c.Client, Ledger: ledger, Events: recorder, Counters: metrics.counters, Clock: c.Clock,
			WholeBlocks: s.Defaults.WholeBlocks, ReadOnly: readOnly,
		},
		Pin: &pin.Reconciler{
			Cache: c.Cache, Client: c.Client, Ledger: ledger, Pools: cluster.Pools, Events: recorder, Counters: metrics.counters, Clock: c.Clock,
			ReadOnly: readOnly,
		},
		Keeper: &pin.Keeper{
			Cache: c.Cache, Live: c.Live, Client: c.Client, Ledger: ledger, Pools: cluster.Pools, Pods: cluster.Pods, CiliumPools: cluster.CiliumPools,
			Events: recorder, Counters: metrics.counters, Clock: c.Clock, ReadOnly: readOnly,
		},
		Publisher: &block.Publisher{
			Cache: c.Cache, Client: c.Client, Ledger: ledger, Counters: metrics.counters, Clock: c.Clock, ReadOnly: readOnly,
		},
		CiliumPool: &ciliumpool.Reconciler{
			Live: c.Live, Client: c.Client, Ledger: ledger, Pools: cluster.Pools, CiliumPools: cluster.CiliumPools, Events: recorder, Counters: metrics.counters,
			Off: readOnly || !s.KeepCiliumPools,
		},
		Unscheduled: &unscheduled.Reconciler{
			Cluster: scheduling.Offering{State: cluster, Unscheduled: feed.Unscheduled},
			Cache:   c.Cache, QueueNodes: feed.QueueNodes, Metrics: metrics.unscheduled, Clock: c.Clock,
		},
		Feed: feed, metrics: metrics.own,
	}
	o.announce(c, s)
	return o, nil
}

// feedOf returns the feed of a cluster. Changes that no watch shows queue nodes through it, too. Where Nodes offer
// addresses, it makes the cluster keep unscheduled pods.
func feedOf(c Environment, s config.Settings, cluster *state.Cluster, pressure *state.Pressure) *informer.Feed {
	feed := informer.NewFeed()
	if len(s.OfferFamilies) > 0 {
		feed.Unscheduled = scheduling.NewUnscheduled()
		cluster.Pods.RememberEnded = true
		cluster.Unscheduled = feed.Unscheduled
		feed.Unscheduled.Changed = feed.Reassign
	}
	feed.Ledger = cluster.Ledger
	feed.Pools = cluster.Pools
	feed.Pods = cluster.Pods
	feed.Agents = cluster.Agents
	feed.CiliumPools = cluster.CiliumPools
	feed.Awaiting = cluster.Awaiting
	feed.Now = c.Clock.Now
	feed.Mode = s.Mode
	cluster.Ledger.Changed = feed.SpaceChanged
	cluster.Awaiting.Changed = feed.QueueNodes
	pressure.Changed = feed.QueueNodes
	c.Recovery.Notify(feed.Reconfigured)
	return feed
}

// clusterOf returns the state of a cluster of which nothing has been read.
func clusterOf(c Environment, s config.Settings, pressure *state.Pressure) state.Cluster {
	ledger := state.NewLedger()
	ledger.Now = c.Clock.Now
	return state.Cluster{
		Ledger: ledger, Pools: state.NewPools(s.Defaults, ledger), Pods: state.NewPods(),
		Agents: state.NewAgents(s.AgentSettle), CiliumPools: state.NewCiliumPools(), Awaiting: &state.Awaiting{},
		Cilium: &ciliumconfig.Latest{}, Mode: s.Mode, AnyMode: s.SkipModeCheck || s.Shadow,
		TakenPercent: pressure.TakenPercent, Defaults: s.Defaults, Paused: s.Paused, Recovery: c.Recovery, ParkBlocks: s.ParkBlocks, CompactBlocks: s.CompactBlocks,
		IgnoreTaints: state.SetOf(s.IgnoreTaints), StartupTaints: state.SetOf(s.StartupTaints),
		ShortageTaint: s.ShortageTaint,
	}
}

// offer has Nodes offer addresses of these families. Without any, no part of scheduling stays on.
func (o *Operator) offer(families []ipalloc.Family) {
	o.Node.OfferFamilies = families
	if len(families) == 0 {
		o.Feed.Unscheduled = nil
		o.Node.Cluster.Unscheduled = nil
		o.Node.Cluster.Pods.RememberEnded = false
	}
}

// announce adds the controller that announces blocks, if the settings ask for it.
func (o *Operator) announce(c Environment, s config.Settings) {
	if s.FRRNamespace == "" {
		return
	}
	o.Feed.Routes = state.NewFRRConfigurations()
	o.Route = &route.Reconciler{
		Cache: c.Cache, Live: c.Live, Client: c.Client, Ledger: o.Feed.Ledger, Routes: o.Feed.Routes, Events: o.Node.Events, Counters: o.Node.Counters, Clock: c.Clock,
		Namespace: s.FRRNamespace, ReadOnly: s.Paused || s.Shadow,
	}
	o.Node.Routes = o.Route
}
