package controller

import (
	"fmt"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Connections are how an operator reaches the API server, and its clock.
type Connections struct {
	// Cache reads from the informers, Live from the API server; Client writes.
	Cache, Live client.Reader
	Client      client.Client
	Recorder    events.EventRecorder
	Clock       clock.PassiveClock
}

// Operator holds the reconcilers, and the feed that queues their work.
type Operator struct {
	Node       *NodeReconciler
	Pool       *PoolReconciler
	Block      *BlockReconciler
	CiliumPool *CiliumPoolReconciler // of multi-pool mode
	Feed       *informer.Feed
}

// New assembles an operator that has read nothing yet.
func New(c Connections, s Settings) (*Operator, error) {
	own, err := NewMetrics(s.Registry)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	own.built(s.Version, s.Commit)
	s.Defaults.WholeBlocks, s.Defaults.CiliumPools = s.Mode.WholeBlocks(), s.Mode.ManyPools()
	ledger := state.NewLedger()
	node := &NodeReconciler{
		Cluster: state.Cluster{
			Ledger: ledger, Pools: state.NewPools(s.Defaults, ledger), Pods: state.NewPods(),
			Agents: state.NewAgents(s.AgentSettle), CiliumPools: state.NewCiliumPools(), Awaiting: &state.Awaiting{},
			Defaults: s.Defaults, Paused: s.Paused, IgnoreTaints: setOf(s.IgnoreTaints),
			StartupTaints: setOf(s.StartupTaints),
		},
		Cache: c.Cache, Live: c.Live, Client: c.Client,
		CiliumNodes:   &ciliumnode.Client{Writer: c.Client, Reader: c.Live, Mode: s.Mode},
		WaitShown:     ledger.WaitShown,
		Pacing:        NewPacing(s.ReclaimsPerMinute, s.ReclaimsPerMinutePerPool),
		Events:        NewEvents(c.Recorder, c.Clock),
		Metrics:       own,
		Clock:         c.Clock,
		ShortageTaint: s.ShortageTaint, NodeCondition: s.NodeCondition, Shadow: s.Shadow,
	}
	feed := informer.NewFeed()
	feed.Ledger, feed.Pools, feed.Pods, feed.Agents = ledger, node.Pools, node.Pods, node.Agents
	feed.CiliumPools = node.CiliumPools
	feed.Awaiting, feed.Now, feed.Mode = node.Awaiting, c.Clock.Now, s.Mode
	ledger.Changed = feed.Changed
	return &Operator{
		Node: node,
		Pool: &PoolReconciler{
			Cache: c.Cache, Live: c.Live, Client: c.Client, Ledger: ledger, Pools: node.Pools,
			Events: node.Events, Metrics: own, Clock: c.Clock, Horizon: s.ExhaustionHorizon,
			Pressed: node.pressed(feed.QueueNode), Forget: node.Pacing.forgetPool, CiliumPools: feed.CiliumPools,
		},
		Block: &BlockReconciler{
			Cache: c.Cache, Client: c.Client, Ledger: ledger, Events: node.Events, Metrics: own, Clock: c.Clock,
			Paused: s.Paused || s.Shadow,
		},
		CiliumPool: &CiliumPoolReconciler{
			Live: c.Live, Client: c.Client, Ledger: ledger, Pools: node.Pools, CiliumPools: feed.CiliumPools, Metrics: own,
			Off: s.Paused || s.Shadow || !s.KeepCiliumPools,
		},
		Feed: feed,
	}, nil
}
