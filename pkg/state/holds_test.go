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

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
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
	blocksPerNode = 16
	blockBits     = 28
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
	for _, store := range newFleet(200, 50_000).stores() {
		for name, call := range store.calls() {
			b.Run(store.name()+"."+name, func(b *testing.B) { holds.Report(b, call) })
		}
	}
}

// Every method of a type with a lock is measured, and every call leaves the store ready for
// the next one.
func TestEveryHoldIsMeasured(t *testing.T) {
	for _, store := range newFleet(4, 256).stores() {
		for name, call := range store.calls() {
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
	}
}

// store is a value with a lock.
type store struct {
	*fleet
	of any
	// without are methods that only wait for others, or that compare their copies after releasing
	// the lock. walks are methods that walk all nodes or pods.
	without, walks []string
	// special are the calls that need arguments of their own, or that must be undone. The key is
	// the method's name, which other words may follow.
	special map[string]holds.Call
	// values are arguments for all other methods, before the fleet's.
	values func(i int) []any
}

func (s store) name() string { return reflect.TypeOf(s.of).Elem().Name() }

// calls returns a call of each method.
func (s store) calls() map[string]holds.Call {
	calls := maps.Clone(s.special)
	if calls == nil {
		calls = map[string]holds.Call{}
	}
	of := reflect.ValueOf(s.of)
	for method := range of.Type().Methods() {
		special := func(call string) bool { return strings.Fields(call)[0] == method.Name }
		if slices.Contains(s.without, method.Name) || slices.ContainsFunc(slices.Collect(maps.Keys(s.special)), special) {
			continue
		}
		call := s.callPerNode(nil)
		if slices.Contains(s.walks, method.Name) {
			call = s.fewCalls(nil)
		}
		call.Hold = func(i int) time.Duration {
			args := []reflect.Value{of}
			for n := 1; n < method.Type.NumIn(); n++ {
				args = append(args, s.value(i, method.Name, method.Type.In(n)))
			}
			begin := time.Now()
			method.Func.Call(args)
			return time.Since(begin)
		}
		calls[method.Name] = call
	}
	return calls
}

// value returns argument number i of a type.
func (s store) value(i int, method string, of reflect.Type) reflect.Value {
	values := s.fleet.values(i)
	if s.values != nil {
		values = append(s.values(i), values...)
	}
	for _, value := range values {
		if reflect.TypeOf(value).AssignableTo(of) {
			return reflect.ValueOf(value)
		}
	}
	panic(fmt.Sprintf("%s.%s needs a %s: add one to its values", s.name(), method, of))
}

// values returns arguments of methods, by type.
func (f *fleet) values(i int) []any {
	b := f.block(i)
	return []any{
		f.node(i), b, crd.Pin{CIDR: b.CIDR, Node: f.node(i + 1)}, &v1alpha1.PodIPPin{}, b.CIDR, b.UID, []netip.Prefix{b.CIDR}, exclude.Range{CIDR: b.CIDR}, ipalloc.IPv4, f.cuts[i%len(f.cuts)], f.pool(i), f.all,
		f.object(i), f.listed, f.boundPods[i*7919%len(f.boundPods)], f.agentPods[i%len(f.agentPods)], fixtures.Noon(), labels.Set{"zone": "a"},
		i%2 == 0, 0, map[string]bool{}, [2]map[string]bool{}, [2][]string{{poolName(0)}}, state.PickingOf(),
	}
}

// poolNames are values for methods of pools.
func (f *fleet) poolNames(i int) []any { return []any{poolName(i % len(f.all))} }

// fleet is a cluster with blocks of several pools, 16 per node, all published, in all stores.
type fleet struct {
	*state.Ledger
	pools     *state.Pools
	pods      *state.Pods
	agents    *state.Agents
	blocks    []crd.Block
	nodes     []*ciliumnode.View
	all       []*crd.Pool
	cuts      []ipalloc.Cut
	boundPods []state.BoundPod
	agentPods []state.AgentPod
	listed    map[types.UID]bool
	version   int
	// part has as many nodes as are read under the lock at a time, and one has a single
	// node; nil: this is such a fleet itself.
	part, one *fleet
}

func poolName(pool int) string { return fmt.Sprintf("p%d", pool) }

func newFleet(pools, blocks int) *fleet {
	f := &fleet{Ledger: state.NewLedger(), pods: state.NewPods(), agents: state.NewAgents(time.Minute), version: 1, listed: map[types.UID]bool{}}
	f.pools = state.NewPools(fixtures.Defaults(), f.Ledger)
	for pool := range pools {
		f.cuts = append(f.cuts, ipalloc.Cut{Ranges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(pool)}), 20)}, BlockBits: blockBits})
		f.setPool(pool)
		f.all = append(f.all, f.pools.Get(poolName(pool)))
	}
	for n := range blocks / blocksPerNode {
		f.addNode(n, n%pools, n/pools)
	}
	f.SetReady()
	return f
}

func (f *fleet) setPool(pool int) {
	obj := fixtures.PodIPPool(poolName(pool), 8, f.cuts[pool].Ranges[0].String())
	obj.Spec.IPv4.BlockSize = blockBits
	f.version++
	obj.Generation = int64(f.version)
	f.pools.Set(obj)
}

// addNode adds a node with the blocks of a pool at this place.
func (f *fleet) addNode(n, pool, place int) {
	name := fmt.Sprintf("n%05d", n)
	cn := fixtures.CiliumNode(name, "1")
	cn.UID = types.UID(name)
	var keys []string
	for j := range blocksPerNode {
		at := (place*blocksPerNode + j) << (32 - blockBits)
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(pool), byte(at >> 8), byte(at)}), blockBits)
		f.blocks = append(f.blocks, fixtures.Block(cidr.String(), poolName(pool), name, 1))
		f.Upsert(f.blocks[len(f.blocks)-1])
		cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, fixtures.PodCIDR(cidr.String()))
		for addr := cidr.Addr().Next(); cidr.Contains(addr.Next()); addr = addr.Next() {
			keys = append(keys, addr.String())
		}
	}
	cn.Spec.IPAM.Pool = fixtures.AllocationMap(keys...)
	f.nodes = append(f.nodes, ciliumnode.NewView(cn))
	f.UpsertCiliumNode(f.nodes[n])
	f.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: name}, f.address(len(f.nodes)))
	for k := range podsPerNode {
		pod := state.ReadPod(fixtures.Pod(fmt.Sprintf("pod-%s-%d", name, k), fmt.Sprintf("%s-uid-of-36-characters-%d", name, k), name, "10.0.0.1"))
		f.pods.Set(pod, fixtures.Noon())
		f.boundPods = append(f.boundPods, pod)
		f.listed[pod.UID()] = true
	}
	agent := fixtures.AgentPod("agent-"+name, "container", true)
	agent.Spec.NodeName = name
	f.agentPods = append(f.agentPods, state.ReadAgent(agent))
	f.agents.Set(f.agentPods[n], fixtures.Noon())
	f.listed[agent.UID], f.listed[cn.UID] = true, true
}

// address returns the address of node n.
func (f *fleet) address(n int) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)}), 32)}
}

func (f *fleet) next() string { f.version++; return fmt.Sprint(f.version) }

func (f *fleet) block(i int) crd.Block { return f.blocks[i*7919%len(f.blocks)] }

func (f *fleet) node(i int) string { return f.nodes[i%len(f.nodes)].Name }

// view returns the CiliumNode of a node in a new version.
func (f *fleet) view(i int) *ciliumnode.View { return f.nodes[i%len(f.nodes)].At(f.next()) }

// object returns the CiliumNode of a node as it is known.
func (f *fleet) object(i int) *ciliumv2.CiliumNode {
	seen := f.nodes[i%len(f.nodes)]
	return &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: seen.Name, UID: seen.UID, ResourceVersion: seen.ResourceVersion}}
}

func (f *fleet) pool(i int) *crd.Pool { return f.all[i%len(f.all)] }

// callPerNode returns a call with one argument per node, or tried if that is less, and what undoes it.
func (f *fleet) callPerNode(do func(i int), undo ...func(i int)) holds.Call {
	call := holds.Call{N: min(tried, len(f.nodes)), Do: do}
	if len(undo) > 0 {
		call.Undo = undo[0]
	}
	return call
}

// fewCalls is for calls that walk all nodes or all pods.
func (f *fleet) fewCalls(do func(i int)) holds.Call { return holds.Call{N: 3, Do: do} }

// withoutIPv6 returns the CiliumNode of an agent that does not run IPv6.
func withoutIPv6() *ciliumnode.View {
	cn := fixtures.CiliumNode("without-ipv6", "1")
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "192.0.2.1"}}
	cn.Status.IPAM.Used = fixtures.AllocationMap("192.0.2.1")
	return ciliumnode.NewView(cn)
}

func (f *fleet) stores() []store {
	f.part, f.one = newFleet(4, partNodes*blocksPerNode), newFleet(1, blocksPerNode)
	f.part.UpsertCiliumNode(withoutIPv6())
	stores := []store{
		{of: f.Ledger, special: f.ledgerCalls(), walks: []string{"CIDRs", "CiliumNodes", "Nodes"}, without: []string{"WaitClaimable", "WaitReady", "WaitForCache"}},
		{of: f.Exclusions, special: f.exclusionCalls()},
		{of: f.Pins, walks: []string{"All", "Pods"}},
		{of: f.pools, values: f.poolNames, special: map[string]holds.Call{
			"Set":    {N: len(f.cuts), Do: f.setPool},
			"Delete": {N: len(f.cuts), Do: func(i int) { f.pools.Delete(poolName(i)) }, Undo: f.setPool},
		}},
		f.podStore(), f.agentStore(), f.awaitingStore(), f.pressureStore(), f.unscheduledStore(), f.ciliumPoolStore(),
	}
	for i := range stores {
		stores[i].fleet = f
	}
	return stores
}

func (f *fleet) ledgerCalls() map[string]holds.Call {
	var claimed netip.Prefix
	claim := func(i int) {
		cidr, _, err := f.Claim(ipalloc.IPv4, f.node(i), "", f.all)
		if err != nil {
			panic(err)
		}
		claimed = cidr
	}
	forget := func(i int) { f.Forget(f.node(i), claimed) }
	// A deleted block cannot come back under its UID.
	back := func(i int) {
		at := i * 7919 % len(f.blocks)
		b := f.blocks[at]
		b.UID, b.ResourceVersion = types.UID("uid-"+f.next()), fmt.Sprint(f.version)
		f.blocks[at] = b
		f.Upsert(b)
	}
	inPool := func(do func(node, pool string)) holds.Call {
		return f.callPerNode(func(i int) { do(f.node(i), poolName(i%len(f.cuts))) })
	}
	unknown := func(i int) { f.MarkUnknown(f.node(i), f.block(i).CIDR) }
	restore := func(i int) { f.UpsertCiliumNode(f.view(i)) }
	// after measures a call without the one before it.
	prepared := func(before, do func(i int)) holds.Call {
		return holds.Call{N: min(tried, len(f.nodes)), Hold: func(i int) time.Duration {
			before(i)
			begin := time.Now()
			do(i)
			return time.Since(begin)
		}}
	}
	forgetCiliumNode := prepared(func(i int) { f.RemoveCiliumNode(f.view(i)) }, func(i int) { f.ForgetCiliumNode(f.node(i)) })
	forgetCiliumNode.Undo = restore
	return map[string]holds.Call{
		"Used":                           inPool(func(_, pool string) { f.Used(pool) }),
		"Size":                           inPool(func(_, pool string) { f.Size(pool) }),
		"MovingOff":                      inPool(func(_, pool string) { f.MovingOff(pool) }),
		"MovesOff":                       inPool(func(node, pool string) { f.MovesOff(node, pool) }),
		"Overlaps":                       f.callPerNode(func(i int) { f.Overlaps(f.block(i).CIDR) }),
		"Overlaps a pool":                f.callPerNode(func(i int) { f.Overlaps(f.cuts[i%len(f.cuts)].Ranges[0]) }),
		"PoolBlocks":                     {N: len(f.cuts), Hold: f.longestPart},
		"NotRunning":                     f.fewCalls(func(int) { f.part.NotRunning(ipalloc.IPv6, poolName(0)) }),
		"NamedElsewhere":                 f.callPerNode(func(i int) { f.NamedElsewhere(f.block(i).Node, f.block(i).CIDR) }),
		"NamedElsewhere of another node": f.fewCalls(func(i int) { f.part.NamedElsewhere("another", f.part.block(i).CIDR) }),
		"ListedFor":                      f.fewCalls(func(int) { f.part.ListedFor("blue") }),
		"MissingCiliumNodes":             f.fewCalls(func(int) { f.part.MissingCiliumNodes(f.listed, f.next()) }),
		"Withholders":                    f.fewCalls(func(int) { f.part.Withholders(f.cuts[0]) }),
		"Upsert": f.callPerNode(func(i int) {
			b := f.block(i)
			b.ResourceVersion = f.next()
			f.Upsert(b)
		}),
		"Assume":                 f.callPerNode(func(i int) { f.Assume(f.block(i)) }),
		"Assume after an outage": f.callPerNode(func(i int) { f.Assume(f.block(i)) }, unknown),
		"Remove":                 f.callPerNode(func(i int) { f.Remove(f.block(i)) }, back),
		"Claim":                  f.callPerNode(claim, forget),
		"Forget":                 prepared(claim, forget),
		"MarkUnknown":            f.callPerNode(unknown, func(i int) { f.Forget(f.node(i), f.block(i).CIDR) }),
		"UpsertCiliumNode":       f.callPerNode(restore),
		"RemoveCiliumNode":       f.callPerNode(func(i int) { f.RemoveCiliumNode(f.view(i)) }, restore),
		"ForgetCiliumNode":       forgetCiliumNode,
	}
}

func (f *fleet) exclusionCalls() map[string]holds.Call {
	exclusion := func(add int) func(int) {
		return func(i int) {
			f.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: f.node(i)}, f.address(i+1+add))
		}
	}
	ask := func(cidrs ...netip.Prefix) exclude.Ask {
		return exclude.Ask{By: exclude.Claimant{Kind: exclude.LoadBalancerPool, Name: "lb", Asks: true}, CIDRs: cidrs}
	}
	return map[string]holds.Call{
		"Excluded":        f.callPerNode(func(i int) { f.Exclusions.Excluded(f.block(i).CIDR) }),
		"Excluded of all": f.fewCalls(func(int) { f.Exclusions.Excluded(netip.MustParsePrefix("192.168.0.0/16")) }),
		"Exclude":         f.callPerNode(exclusion(len(f.nodes)), exclusion(0)),
		"Ask":             f.callPerNode(func(i int) { f.Exclusions.Ask(ask(f.address(i + 1)...)) }, func(int) { f.Exclusions.Ask(ask()) }),
	}
}

// longestPart returns the longest time from one block of a pool to the next, as the iteration may
// hold the lock for it.
func (f *fleet) longestPart(i int) (longest time.Duration) {
	last := time.Now()
	for range f.PoolBlocks(poolName(i)) {
		longest = max(longest, time.Since(last))
		last = time.Now()
	}
	return max(longest, time.Since(last))
}

func (f *fleet) podStore() store {
	pod := func(i int) state.BoundPod { return f.boundPods[i*7919%len(f.boundPods)] }
	return store{of: f.pods, special: map[string]holds.Call{
		"Delete": f.callPerNode(func(i int) { f.pods.Delete(pod(i).PodKey, fixtures.Noon()) }, func(i int) { f.pods.Set(pod(i), fixtures.Noon()) }),
		"SetNamespace": f.fewCalls(func(int) { // no pod is in this namespace, so all are visited
			f.one.pods.SetNamespace("other", state.PoolRequestOf(&metav1.ObjectMeta{Annotations: map[string]string{"ipam.cilium.io/ip-pool": f.next()}}))
		}),
		"Missing": f.fewCalls(func(int) { f.one.pods.Missing(f.listed) }),
	}}
}

func (f *fleet) agentStore() store {
	pod := func(i int) state.AgentPod { return f.agentPods[i%len(f.agentPods)] }
	return store{of: f.agents, special: map[string]holds.Call{
		"Delete":  f.callPerNode(func(i int) { f.agents.Delete(pod(i).PodKey) }, func(i int) { f.agents.Set(pod(i), fixtures.Noon()) }),
		"Missing": f.fewCalls(func(int) { f.part.agents.Missing(f.listed) }),
	}}
}

// awaitingStore returns a store with every node waiting for every pool.
func (f *fleet) awaitingStore() store {
	a, one, all := &state.Awaiting{}, &state.Awaiting{}, [2][]*crd.Pool{f.all}
	set := func(i int) { a.Set(f.node(i), true, true, all) }
	for i := range f.nodes {
		set(i)
	}
	one.Set("n", true, true, all)
	begin, end := func(i int) { a.Begin(f.node(i)) }, func(i int) { a.End(f.node(i)) }
	return store{of: a, special: map[string]holds.Call{
		"Set":    f.callPerNode(set),
		"Wake":   {N: 3, Do: func(i int) { one.Wake(ipalloc.IPv4, []string{poolName(i)}) }, Undo: func(int) { one.Begin("n"); one.End("n") }},
		"Begin":  f.callPerNode(begin, end),
		"End":    f.callPerNode(func(i int) { begin(i); end(i) }),
		"Forget": f.callPerNode(func(i int) { a.Forget(f.node(i)) }, set),
	}}
}

// pressureStore returns a store with an idle block on every node.
func (f *fleet) pressureStore() store {
	p, percent := state.NewPressure(), 0
	for i := range f.nodes {
		p.SetIdle(f.node(i), [2][]string{{poolName(0)}})
	}
	return store{of: p, special: map[string]holds.Call{
		"Set": f.callPerNode(func(i int) {
			percent = 99 - percent%2
			p.Set(f.pool(i), ipalloc.IPv4, percent)
		}),
		"TakenPercent": f.callPerNode(func(i int) { p.TakenPercent(poolName(i%len(f.all)), ipalloc.IPv4) }),
		"ForgetPool":   {N: len(f.all), Do: func(i int) { p.ForgetPool(poolName(i)) }, Undo: func(i int) { p.Set(f.pool(i), ipalloc.IPv4, 50) }},
	}}
}

// unscheduledStore returns a store with a waiting pod for each node, and needs for every node.
func (f *fleet) unscheduledStore() store {
	u, now := scheduling.NewUnscheduled(), fixtures.Noon()
	var pods []scheduling.UnscheduledPod
	needs := map[scheduling.NodeCiliumPool]scheduling.NodeNeeds{}
	for i := range f.nodes {
		pod := fixtures.Pod("p", "unscheduled-"+f.node(i), "")
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "Insufficient " + string(state.OfferResource(ipalloc.IPv4, ""))}}
		pods = append(pods, scheduling.ReadUnscheduled(pod))
		u.Set(pods[i], now)
		needs[scheduling.NodeCiliumPool{Node: f.node(i)}] = scheduling.NodeNeeds{Expected: [2]int{1}}
	}
	u.SetNeeds(needs)
	set := func(i int) { u.Set(pods[i%len(pods)], now) }
	return store{of: u, without: []string{"Missing", "SetNeeds"}, special: map[string]holds.Call{
		"Set": f.callPerNode(set), "Delete": f.callPerNode(func(i int) { u.Delete(pods[i%len(pods)].UID()) }, set),
	}}
}

// ciliumPoolStore returns a store with a Cilium pool for each pool.
func (f *fleet) ciliumPoolStore() store {
	c := state.NewCiliumPools()
	var views []*ciliumpool.View
	for pool := range f.all {
		views = append(views, fixtures.Picking(poolName(pool), map[string]string{"app": poolName(pool)}, nil))
		c.Set(views[pool])
	}
	set := func(i int) { c.Set(views[i]) }
	values := func(i int) []any { return append(f.poolNames(i), f.Ledger) }
	return store{of: c, values: values, special: map[string]holds.Call{
		"Set": {N: len(views), Do: set}, "Delete": {N: len(views), Do: func(i int) { c.Delete(views[i]) }, Undo: set},
	}}
}
