package controller

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/node"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// An operator that is paused, in shadow mode, or configured not to maintain them, writes no
// CiliumPodIPPools.
func TestKeepsNoCiliumPools(t *testing.T) {
	for name, test := range map[string]struct {
		settings config.Settings
		off      bool
	}{
		"keeps":  {config.Settings{KeepCiliumPools: true}, false},
		"not":    {config.Settings{}, true},
		"shadow": {config.Settings{KeepCiliumPools: true, Shadow: true}, true},
		"paused": {config.Settings{KeepCiliumPools: true, Paused: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			test.settings.Registry = prometheus.NewRegistry()
			o, err := New(Environment{Clock: clocktesting.NewFakePassiveClock(fixtures.Noon())}, test.settings)
			if err != nil || o.CiliumPool.Off != test.off {
				t.Errorf("off: %t, %v", o.CiliumPool.Off, err)
			}
		})
	}
}

// In shadow mode the assembled operator does not write to blocks.
func TestShadowLeavesBlocksAlone(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24"))
	o, err := New(Environment{Cache: b.Cached(), Live: b.API, Client: b.API, Clock: b.Clock}, config.Settings{Shadow: true, Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if !o.Node.Shadow || !o.Block.ReadOnly {
		t.Errorf("nodes in shadow: %t, blocks paused: %t; want both", o.Node.Shadow, o.Block.ReadOnly)
	}
}

// All writers share one breaker, so a refusal that one of them meets spares the others' tries.
func TestWritersShareTheBreaker(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD)
	o, err := New(Environment{Cache: b.Cached(), Live: b.API, Client: b.API, Clock: b.Clock}, config.Settings{FRRNamespace: "frr", Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	breaker, wired := o.Node.Blocks.Writer.(*common.Breaker)
	if !wired {
		t.Fatalf("blocks are written by %T", o.Node.Blocks.Writer)
	}
	for kind, writer := range map[string]any{
		"CiliumNodes": o.Node.CiliumNodes.Writer, "Nodes": o.Node.Reporter.Client, "pools": o.Pool.Client, "blocks": o.Block.Client, "pins": o.Pin.Client,
		"pins of pods": o.Keeper.Client, "conditions": o.Publisher.Client, "CiliumPodIPPools": o.CiliumPool.Client, "routes": o.Route.Client,
	} {
		if writer != breaker {
			t.Errorf("%s are written by %T of its own", kind, writer)
		}
	}
}

// Where admission cannot make pods request addresses, an operator that was to offer some decides as one that
// was not.
func TestOffersNothing(t *testing.T) {
	ipv4 := []ipalloc.Family{ipalloc.IPv4}
	for name, families := range map[string][]ipalloc.Family{"offers": ipv4, "nothing": nil} {
		t.Run(name, func(t *testing.T) {
			b := fakeapi.New(t, ciliumnode.CRD)
			o, err := New(Environment{Cache: b.Cached(), Live: b.API, Client: b.API, Clock: b.Clock},
				config.Settings{OfferFamilies: ipv4, Defaults: fixtures.Defaults(), Registry: prometheus.NewRegistry()})
			if err != nil {
				t.Fatal(err)
			}
			o.offer(families)
			o.Node.Cluster.Pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
			pod := state.ReadPod(fixtures.Pod("a", "a", "n"))
			o.Node.Cluster.Pods.Set(pod, fixtures.Noon())
			o.Node.Cluster.Pods.Delete(pod.PodKey, fixtures.Noon())
			s := o.Node.Cluster.Snapshot("n", fixtures.Node(), fixtures.Noon())
			if want := len(families) > 0; s.Shares[0].State.Offers != want || len(s.Ended) > 0 != want || (o.Feed.Unscheduled != nil) != want {
				t.Errorf("offers %t, remembers %v, watches unscheduled pods %t; want %t", s.Shares[0].State.Offers, s.Ended, o.Feed.Unscheduled != nil, want)
			}
		})
	}
}

// Room is computed for the family that has less of it, from the operator's claims for a new node.
func TestRoomIsWhatANewNodeTakes(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24"))
	own, err := node.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	pods := state.NewPods()
	pods.Set(state.ReadPod(fixtures.Pod("router", "1", "n")), fixtures.Noon())
	pods.Set(state.ReadPod(fixtures.Pod("health", "2", "n")), fixtures.Noon())
	nodes := &node.Reconciler{
		Cluster: state.Cluster{Ledger: b.Ledger, Pools: b.Pools, Defaults: b.Defaults(), Pods: pods, Agents: state.NewAgents(time.Minute), Awaiting: &state.Awaiting{}},
		Cache:   b.Cached(), Live: b.Live(), CiliumNodes: &ciliumnode.Client{Writer: b.API, Reader: b.Live()},
		Blocks:   &node.BlockClient{Cache: b.Cached(), Live: b.Live(), Writer: b.API, Ledger: b.Ledger, Counters: b.Shared, Clock: b.Clock, WaitForCache: b.Ledger.WaitForCache},
		Reporter: &node.Reporter{Client: b.API, Events: b.Events, Counters: b.Shared, Clock: b.Clock, Cache: b.Cached(), Live: b.Live(), Ledger: b.Ledger},
		Pacing:   b.Pacing, Pressure: b.Pressure, Events: b.Events, Metrics: own, Counters: b.Shared, Clock: b.Clock,
	}
	nodes.Cluster.Agents.Set(state.ReadAgent(fixtures.AgentPod("agent", "c", false)), fixtures.Noon())
	pools := poolReconciler(b)
	for range 3 {
		b.Watch()
		if _, err := nodes.Reconcile(t.Context(), fakeapi.RequestOf("n")); err != nil {
			t.Fatal(err)
		}
		if _, err := pools.Reconcile(t.Context(), fakeapi.RequestOf("p")); err != nil {
			t.Fatal(err)
		}
	}
	if held := len(b.Blocks()); held != 3 {
		t.Errorf("a new node has got %d blocks, want 3", held)
	}
	got := &v1alpha1.PodIPPool{}
	if err := b.API.Get(t.Context(), client.ObjectKey{Name: "p"}, got); err != nil {
		t.Fatal(err)
	}
	if s := got.Status; s.RoomForNodes == nil || *s.RoomForNodes != 20 { // 64 blocks, 3 of them held
		t.Errorf("there is room for %v nodes, want 20", s.RoomForNodes)
	}
}

func poolReconciler(b *fakeapi.Cluster) *pool.Reconciler {
	b.T.Helper()
	own, err := pool.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		b.T.Fatal(err)
	}
	return &pool.Reconciler{
		Cache: b.Cached(), Live: b.Live(), Client: b.API, Ledger: b.Ledger, Pools: b.Pools, CiliumPools: state.NewCiliumPools(),
		Pacing: b.Pacing, Pressure: b.Pressure,
		Events: b.Events, Metrics: own, Counters: b.Shared, Clock: b.Clock,
	}
}
