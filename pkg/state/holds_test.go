package state_test

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/holds"
)

const (
	largePools  = 200
	largeBlocks = 50_000
	// podsPerNode is the kubelet's default limit.
	podsPerNode = 110
	// tried is the number of arguments that a call is tried with, if there are more.
	tried = 1000
	// partNodes is the number of nodes read under the lock at a time by methods that read all of
	// them: partSize.
	partNodes = 64
)

// BenchmarkHolds reports the longest time that each method holds its lock, with 200 pools,
// 50,000 blocks (16 on each of 3,125 nodes), and 110 pods per node. Half of the pools have
// no block left. Methods that take the lock for one part at a time are called on one part;
// copying the names of all nodes, which they do first, takes as long as Ledger.Nodes.
func BenchmarkHolds(b *testing.B) {
	for _, store := range large(largePools, largeBlocks).stores() {
		for _, name := range slices.Sorted(maps.Keys(store.calls)) {
			b.Run(store.name()+"."+name, func(b *testing.B) { holds.Report(b, store.calls[name]) })
		}
	}
}

// Every method of a type with a lock is measured, and every call leaves the store ready for
// the next one.
func TestEveryHoldIsMeasured(t *testing.T) {
	for _, store := range large(4, 256).stores() {
		for name, call := range store.calls {
			for i := range min(call.N, 3) {
				if call.Hold != nil {
					call.Hold(i)
				} else {
					call.Do(i)
				}
				if call.Undo != nil {
					call.Undo(i)
				}
			}
			if call.N == 0 {
				t.Errorf("%s.%s is called with nothing", store.name(), name)
			}
		}
		for method := range reflect.TypeOf(store.of).Methods() {
			measured := func(call string) bool { return strings.Fields(call)[0] == method.Name }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(store.calls)), measured) && !slices.Contains(store.without, method.Name) {
				t.Errorf("%s.%s is not measured", store.name(), method.Name)
			}
		}
	}
}

// store is a value with a lock, and the calls of its methods. The key of a call is the
// method's name, which other words may follow.
type store struct {
	of    any
	calls map[string]holds.Call
	// without are methods that only wait for others, or that compare their copies after releasing
	// the lock.
	without []string
}

func (s store) name() string { return reflect.TypeOf(s.of).Elem().Name() }

// largeFleet is a fleet plus the contents of all other stores.
type largeFleet struct {
	*fleet
	// part has as many nodes as are read under the lock at a time, and one has a single
	// node; nil: this is such a fleet itself.
	part, one  *largeFleet
	version    int
	names      []string
	all        []*crd.Pool
	pods       *state.Pods
	agents     *state.Agents
	boundPods  []state.BoundPod
	agentPods  []state.AgentPod
	listedPods map[types.UID]bool
}

func large(pools, blocks int) *largeFleet {
	f := &largeFleet{fleet: newFleetIn(20, pools, blocks), version: 1, listedPods: map[types.UID]bool{}}
	f.pods, f.agents = state.NewPods(), state.NewAgents(time.Minute)
	for pool := range pools {
		f.all = append(f.all, f.pools.Get(poolName(pool)))
	}
	for _, cn := range f.nodes {
		f.names = append(f.names, cn.Name)
		for k := range podsPerNode {
			pod := state.ReadPod(fixtures.Pod(fmt.Sprintf("pod-%s-%d", cn.Name, k), fmt.Sprintf("%s-uid-of-36-characters-%d", cn.Name, k), cn.Name, "10.0.0.1"))
			f.pods.Set(pod, fixtures.Noon())
			f.boundPods = append(f.boundPods, pod)
			f.listedPods[pod.UID()] = true
		}
		agent := fixtures.AgentPod("agent-"+cn.Name, "container", true)
		agent.Spec.NodeName = cn.Name
		f.agentPods = append(f.agentPods, state.ReadAgent(agent))
		f.agents.Set(f.agentPods[len(f.agentPods)-1], fixtures.Noon())
		f.listedPods[agent.UID] = true
		f.Exclude(exclude.Claimant{Kind: exclude.Node, Name: cn.Name}, f.address(len(f.names)))
	}
	return f
}

// address returns the address of node n.
func (f *largeFleet) address(n int) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)}), 32)}
}

func (f *largeFleet) next() string { f.version++; return fmt.Sprint(f.version) }

func (f *largeFleet) block(i int) crd.Block { return f.blocks[i*7919%len(f.blocks)] }

func (f *largeFleet) node(i int) string { return f.names[i%len(f.names)] }

// object returns the CiliumNode of a node as it is known.
func (f *largeFleet) object(i int) *ciliumv2.CiliumNode {
	seen := f.nodes[i%len(f.nodes)]
	return &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: seen.Name, UID: seen.UID, ResourceVersion: seen.ResourceVersion}}
}

func (f *largeFleet) pool(i int) *crd.Pool { return f.all[i%len(f.all)] }

// each returns a call with one argument per node, or tried if that is less.
func (f *largeFleet) each(do func(i int)) holds.Call {
	return holds.Call{N: min(tried, len(f.nodes)), Do: do}
}

// few is for calls that walk all nodes or all pods.
func (f *largeFleet) few(do func(i int)) holds.Call { return holds.Call{N: 3, Do: do} }

// withoutIPv6 returns the CiliumNode of an agent that does not run IPv6.
func withoutIPv6() *ciliumnode.View {
	cn := fixtures.CiliumNode("without-ipv6", "1")
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "192.0.2.1"}}
	cn.Status.IPAM.Used = fixtures.AllocationMap("192.0.2.1")
	return ciliumnode.NewView(cn)
}

func (f *largeFleet) stores() []store {
	f.part, f.one = large(4, partNodes*blocksPerNode), large(1, blocksPerNode)
	f.part.UpsertCiliumNode(withoutIPv6())
	return []store{
		{f.Ledger, f.ledgerCalls(), []string{"WaitReady", "WaitShown"}},
		{f.pools, f.poolsCalls(), nil},
		{f.pods, f.podsCalls(), nil},
		{f.agents, f.agentsCalls(), nil},
		{&state.Awaiting{}, f.awaitingCalls(), nil},
		{&state.Pressure{}, f.pressureCalls(), nil},
		{&scheduling.Unscheduled{}, f.unscheduledCalls(), []string{"Missing", "SetNeeds"}},
		{&state.CiliumPools{}, f.ciliumPoolsCalls(), nil},
		{&state.Unrecorded{}, f.unrecordedCalls(), nil},
	}
}

func (f *largeFleet) poolsCalls() map[string]holds.Call {
	p := f.pools
	obj := func(i int) (string, netip.Prefix) { return poolName(i % len(f.cuts)), f.cuts[i%len(f.cuts)].Ranges[0] }
	set := func(i int) {
		name, cidr := obj(i)
		pool := fixtures.PodIPPool(name, 8, cidr.String())
		pool.Spec.IPv4.BlockSize = blockBits
		f.version++
		pool.Generation = int64(f.version)
		p.Set(pool)
	}
	calls := func(do func(i int)) holds.Call { return holds.Call{N: len(f.cuts), Do: do} }
	return map[string]holds.Call{
		"Serving":       calls(func(int) { p.Serving("default") }),
		"CiliumPools":   calls(func(int) { p.CiliumPools() }),
		"Set":           calls(set),
		"Names":         calls(func(int) { p.Names() }),
		"Delete":        {N: len(f.cuts), Do: func(i int) { p.Delete(poolName(i)) }, Undo: set},
		"Get":           calls(func(i int) { p.Get(poolName(i)) }),
		"Touching":      calls(func(i int) { p.Touching([]netip.Prefix{f.block(i).CIDR}) }),
		"Invalid":       calls(func(i int) { _ = p.Invalid(poolName(i)) }),
		"Match":         calls(func(int) { p.Match(labels.Set{"zone": "a"}) }),
		"RulingIsFinal": calls(func(int) { p.RulingIsFinal(labels.Set{"zone": "a"}) }),
	}
}

func (f *largeFleet) podsCalls() map[string]holds.Call {
	p := f.pods
	pod := func(i int) state.BoundPod { return f.boundPods[i*7919%len(f.boundPods)] }
	node := func(i int) string { return pod(i).Node }
	requests := []state.PoolRequest{
		state.PoolRequestOf(&metav1.ObjectMeta{Annotations: map[string]string{"ipam.cilium.io/ip-pool": "a"}}),
		state.PoolRequestOf(&metav1.ObjectMeta{Annotations: map[string]string{"ipam.cilium.io/ip-pool": "b"}}),
	}
	return map[string]holds.Call{
		"Set":          f.each(func(i int) { p.Set(pod(i), fixtures.Noon()) }),
		"Delete":       {N: min(tried, len(f.nodes)), Do: func(i int) { p.Delete(pod(i).PodKey, fixtures.Noon()) }, Undo: func(i int) { p.Set(pod(i), fixtures.Noon()) }},
		"On":           f.each(func(i int) { p.On(node(i)) }),
		"Ended":        f.each(func(i int) { p.Ended(node(i), fixtures.Noon()) }),
		"PoolRequests": f.each(func(i int) { p.PoolRequests(node(i), nil) }),
		"SetNamespace": f.few(func(int) {
			f.version++
			f.one.pods.SetNamespace("other", requests[f.version%2]) // no pod is in this namespace, so all are visited
		}),
		"Missing": f.few(func(int) { f.one.pods.Missing(f.listedPods) }),
	}
}

func (f *largeFleet) agentsCalls() map[string]holds.Call {
	a, now := f.agents, fixtures.Noon()
	pod := func(i int) state.AgentPod { return f.agentPods[i%len(f.agentPods)] }
	return map[string]holds.Call{
		"Set":              f.each(func(i int) { a.Set(pod(i), now) }),
		"Delete":           {N: min(tried, len(f.nodes)), Do: func(i int) { a.Delete(pod(i).PodKey) }, Undo: func(i int) { a.Set(pod(i), now) }},
		"Missing":          f.few(func(int) { f.part.agents.Missing(f.listedPods) }),
		"Container":        f.each(func(i int) { a.Container(f.node(i)) }),
		"Settled":          f.each(func(i int) { a.Settled(f.node(i), now) }),
		"MayWaitForFamily": f.each(func(i int) { a.MayWaitForFamily(f.node(i), now) }),
		"Runs":             f.each(func(i int) { a.Runs(f.node(i)) }),
	}
}

// awaitingCalls returns calls with every node waiting for every pool.
func (f *largeFleet) awaitingCalls() map[string]holds.Call {
	a, one := &state.Awaiting{}, &state.Awaiting{}
	all := [2][]*crd.Pool{f.all}
	for _, name := range f.names {
		a.Set(name, true, true, all)
	}
	one.Set("n", true, true, all)
	set := func(i int) { a.Set(f.node(i), true, true, all) }
	looks, looked := func(i int) { a.Looks(f.node(i)) }, func(i int) { a.Looked(f.node(i)) }
	return map[string]holds.Call{
		"Set":    f.each(set),
		"Has":    f.each(func(i int) { a.Has(f.node(i)) }),
		"Wake":   {N: 3, Do: func(i int) { one.Wake(ipalloc.IPv4, []string{poolName(i)}) }, Undo: func(int) { one.Looks("n"); one.Looked("n") }},
		"Looks":  {N: min(tried, len(f.nodes)), Do: looks, Undo: looked},
		"Looked": f.each(func(i int) { looks(i); looked(i) }),
		"Forget": {N: min(tried, len(f.nodes)), Do: func(i int) { a.Forget(f.node(i)) }, Undo: set},
	}
}

// pressureCalls returns calls with an idle block on every node.
func (f *largeFleet) pressureCalls() map[string]holds.Call {
	p := state.NewPressure()
	for _, name := range f.names {
		p.SetIdle(name, [2][]string{{poolName(0)}})
	}
	percent := 0
	return map[string]holds.Call{
		"Set": f.each(func(i int) {
			percent = 99 - percent%2
			p.Set(f.pool(i), ipalloc.IPv4, percent)
		}),
		"Taken":      f.each(func(i int) { p.Taken(poolName(i%len(f.all)), ipalloc.IPv4) }),
		"SetIdle":    f.each(func(i int) { p.SetIdle(f.node(i), [2][]string{{poolName(0)}}) }),
		"ForgetPool": {N: len(f.all), Do: func(i int) { p.ForgetPool(poolName(i)) }, Undo: func(i int) { p.Set(f.pool(i), ipalloc.IPv4, 50) }},
	}
}

// unscheduledCalls returns calls with a waiting pod for each node, and needs for every
// node.
func (f *largeFleet) unscheduledCalls() map[string]holds.Call {
	u, now := scheduling.NewUnscheduled(), fixtures.Noon()
	var pods []scheduling.UnscheduledPod
	needs := map[string]scheduling.NodeNeeds{}
	for i, name := range f.names {
		pod := fixtures.Pod("p", "unscheduled-"+name, "")
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "Insufficient " + string(state.OfferResource(ipalloc.IPv4))}}
		pods = append(pods, scheduling.ReadUnscheduled(pod))
		u.Set(pods[i], now)
		needs[name] = scheduling.NodeNeeds{Expected: [2]int{1}}
	}
	u.SetNeeds(needs)
	pod := func(i int) scheduling.UnscheduledPod { return pods[i%len(pods)] }
	return map[string]holds.Call{
		"Set":             f.each(func(i int) { u.Set(pod(i), now) }),
		"Delete":          {N: min(tried, len(pods)), Do: func(i int) { u.Delete(pod(i).UID()) }, Undo: func(i int) { u.Set(pod(i), now) }},
		"Any":             f.each(func(int) { u.Any() }),
		"Needs":           f.each(func(i int) { u.Needs(f.node(i), ipalloc.IPv4, 0) }),
		"IsScarce":        f.each(func(int) { u.IsScarce(ipalloc.IPv4, f.all) }),
		"SetScarce":       f.each(func(int) { u.SetScarce([2]map[string]bool{}) }),
		"SetWithoutBlock": f.each(func(i int) { u.SetWithoutBlock(f.node(i), i%2 == 0) }),
	}
}

// ciliumPoolsCalls returns calls with a Cilium pool for each pool.
func (f *largeFleet) ciliumPoolsCalls() map[string]holds.Call {
	c := state.NewCiliumPools()
	var views []*ciliumpool.View
	for pool := range f.all {
		views = append(views, fixtures.Picking(poolName(pool), map[string]string{"app": poolName(pool)}, nil))
		c.Set(views[pool])
	}
	calls := func(do func(i int)) holds.Call { return holds.Call{N: len(views), Do: do} }
	return map[string]holds.Call{
		"SetKnown": calls(func(int) { c.SetKnown() }),
		"Known":    calls(func(int) { c.Known() }),
		"Set":      calls(func(i int) { c.Set(views[i]) }),
		"Delete":   {N: len(views), Do: func(i int) { c.Delete(views[i]) }, Undo: func(i int) { c.Set(views[i]) }},
		"Get":      calls(func(i int) { c.Get(poolName(i)) }),
		"Names":    calls(func(int) { c.Names() }),
		"Picking":  calls(func(int) { c.Picking() }),
		"Missing":  calls(func(int) { c.Missing(f.listedPods) }),
	}
}

func (f *largeFleet) unrecordedCalls() map[string]holds.Call {
	u := &state.Unrecorded{}
	return map[string]holds.Call{
		"Set": f.each(func(int) { u.Set(map[string]bool{}) }),
		"Has": f.each(func(i int) { u.Has(poolName(i)) }),
	}
}
