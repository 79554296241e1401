package scheduling

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const lacksIPv4 = "0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient cilium-pool.io/ipv4. no new claims to deallocate"

// unscheduledPod returns a pod that requests one IPv4 address, with the scheduler's message
// why it has no node.
func unscheduledPod(uid, why string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := fixtures.Requesting(fixtures.Pod("p"+uid, uid, ""), 1)
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func TestLacksAddresses(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"lacks addresses":               {unscheduledPod("1", lacksIPv4), true},
		"of the other family":           {unscheduledPod("1", "0/1 nodes are available: 1 Insufficient cilium-pool.io/ipv6."), true},
		"lacks something else":          {unscheduledPod("1", "0/3 nodes are available: 3 Insufficient cpu."), false},
		"another project's resource":    {unscheduledPod("1", "0/3 nodes are available: 3 Insufficient example.com/ipv4."), false},
		"the scheduler has yet to look": {fixtures.Requesting(fixtures.Pod("a", "1", ""), 1), false},
		"gated": {unscheduledPod("1", lacksIPv4, func(p *corev1.Pod) {
			p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
		}), false},
		"bound": {unscheduledPod("1", lacksIPv4, func(p *corev1.Pod) { p.Spec.NodeName = "n" }), false},
		"being deleted": {unscheduledPod("1", lacksIPv4, func(p *corev1.Pod) {
			now := metav1.Now()
			p.DeletionTimestamp = &now
		}), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := LacksAddresses(test.pod); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}

func TestOfferIn(t *testing.T) {
	tests := map[string]struct {
		list corev1.ResourceList
		want Offer
	}{
		"nothing":      {nil, Offer{NoOffer, NoOffer}},
		"nothing left": {corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("0")}, Offer{0, NoOffer}},
		"both":         {corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("30"), v1alpha1.IPv6Resource: resource.MustParse("1k")}, Offer{30, 1000}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := OfferIn(test.list); got != test.want {
				t.Errorf("offers %v, want %v", got, test.want)
			}
		})
	}
}

func TestPodsSuitNodes(t *testing.T) {
	onlyOn := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}},
			}}}
		}
	}
	inZone := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} }
	tolerates := func(key string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		}
	}
	plain := func(*corev1.Pod) {}
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: effect}} }
	}
	tests := map[string]struct {
		pod  func(*corev1.Pod)
		node func(*corev1.Node)
		want bool
	}{
		"any":                            {plain, func(*corev1.Node) {}, true},
		"by its selector":                {inZone, func(n *corev1.Node) { n.Labels = map[string]string{"zone": "a"} }, true},
		"not by its selector":            {inZone, func(n *corev1.Node) { n.Labels = map[string]string{"zone": "b"} }, false},
		"by its affinity":                {onlyOn("n"), func(*corev1.Node) {}, true},
		"not by its affinity":            {onlyOn("m"), func(*corev1.Node) {}, false},
		"tainted":                        {plain, tainted(corev1.TaintEffectNoSchedule), false},
		"tainted, pods are evicted":      {plain, tainted(corev1.TaintEffectNoExecute), false},
		"tainted, if possible":           {plain, tainted(corev1.TaintEffectPreferNoSchedule), true},
		"tolerates the taint":            {tolerates("gpu"), tainted(corev1.TaintEffectNoSchedule), true},
		"cordoned":                       {plain, func(n *corev1.Node) { n.Spec.Unschedulable = true }, false},
		"cordoned, the pod tolerates it": {tolerates(corev1.TaintNodeUnschedulable), func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"being deleted": {plain, func(n *corev1.Node) {
			now := metav1.Now()
			n.DeletionTimestamp = &now
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := fixtures.Node()
			test.node(node)
			read := ReadUnscheduled(unscheduledPod("1", lacksIPv4, test.pod))
			if got := read.Suits(node); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}

// clusterOf returns a cluster of a pool with Nodes that offer addresses, with these blocks.
func clusterOf(blocks ...crd.Block) *Offering {
	ledger, u := state.ReadyLedger(blocks...), NewUnscheduled()
	c := &Offering{Unscheduled: u, State: state.Cluster{
		Ledger: ledger, Pools: state.NewPools(fixtures.Defaults(), ledger), Pods: state.NewPods(), Agents: state.NewAgents(0),
		CiliumPools: state.NewCiliumPools(), Defaults: fixtures.Defaults(), Unscheduled: u,
	}}
	c.State.Pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	return c
}

// offering returns a cluster of pools with blocks of two addresses; node n has one block that its
// agent uses.
func offering() *Offering {
	c := clusterOf(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	c.join("n", "10.0.0.1", "10.0.0.2")
	return c
}

// join adds a node with an agent that uses the first two of these published addresses for itself.
func (c *Offering) join(name string, addrs ...string) {
	c.State.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.Joined(name, addrs...)))
}

// nodes returns Nodes that admit ten pods each.
func nodes(names ...string) []corev1.Node {
	var out []corev1.Node
	for _, name := range names {
		n := fixtures.Node()
		n.Name = name
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
		out = append(out, *n)
	}
	return out
}

func (c *Offering) wait(now time.Time, pods ...*corev1.Pod) {
	for _, p := range pods {
		c.Unscheduled.Set(ReadUnscheduled(p), now)
	}
}

// expected returns the number of addresses that each node should have room for.
func expected(a Assignment) map[string][2]int {
	out := map[string][2]int{}
	for on, n := range a.Needs {
		if n.Expected != [2]int{} {
			out[strings.TrimSpace(on.Node+" "+on.CiliumPool)] = n.Expected
		}
	}
	return out
}

func TestAssign(t *testing.T) {
	now := fixtures.Noon()
	tests := map[string]struct {
		spoil  func(*Offering)
		taints []string
		want   string // expected addresses, and the number of pods that find room
	}{
		"the node grows": {want: "map[n:[2 0]] of 2: 0 2 0"},
		"it arrives with the shortage taint": {
			want: "map[n:[2 0]] of 2: 0 2 0", spoil: func(c *Offering) { c.State.ShortageTaint = "example.org/short" },
			taints: []string{"example.org/short", corev1.TaintNodeNotReady},
		},
		"it is tainted otherwise": {want: "map[] of 2: 0 0 0", taints: []string{corev1.TaintNodeNotReady}},
		"the pool is full": {want: "map[n:[2 0]] of 2: 0 0 2", spoil: func(c *Offering) {
			for i, cidr := range []string{"10.0.0.4/30", "10.0.0.8/30", "10.0.0.12/30"} {
				c.State.Ledger.Upsert(fixtures.Block(cidr, "p", "m", i+2))
			}
		}},
		"the node is paused": {want: "map[] of 2: 0 0 0", spoil: func(c *Offering) { c.State.Paused = true }},
		"there is no CiliumNode": {want: "map[] of 2: 0 0 0", spoil: func(c *Offering) {
			c.State.Ledger.RemoveCiliumNode(&ciliumnode.View{Name: "n", UID: c.State.Ledger.CiliumNode("n").UID, ResourceVersion: "9"})
		}},
		"the kubelet admits one": {want: "map[n:[1 0]] of 2: 0 1 0", spoil: func(c *Offering) {
			for i := range 9 {
				c.State.Pods.Set(state.ReadPod(fixtures.Pod(fmt.Sprint("b", i), fmt.Sprint("b", i), "n", fmt.Sprint("192.0.2.", i+1))), now)
			}
		}},
		"one is bound meanwhile": {want: "map[n:[1 0]] of 1: 0 1 0", spoil: func(c *Offering) { c.Unscheduled.Delete("1") }},
		"one lacks something else meanwhile": {want: "map[n:[1 0]] of 1: 0 1 0", spoil: func(c *Offering) {
			c.wait(now, unscheduledPod("1", "0/1 nodes are available: 1 Insufficient cpu."))
		}},
		"one is gone from a list": {want: "map[n:[1 0]] of 1: 0 1 0", spoil: func(c *Offering) {
			for _, p := range c.Unscheduled.Missing(map[types.UID]bool{"1": true}) {
				c.Unscheduled.Delete(p.UID())
			}
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := offering()
			c.wait(now, unscheduledPod("1", lacksIPv4), unscheduledPod("2", lacksIPv4))
			if test.spoil != nil {
				test.spoil(c)
			}
			all := nodes("n")
			for _, key := range test.taints {
				all[0].Spec.Taints = append(all[0].Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			}
			a := c.Assign(all, now)
			if diff := cmp.Diff(test.want, fmt.Sprint(expected(a), " of ", a.Pods, ": ", a.Offered, " ", a.Growing, " ", a.Short)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A pod that waits although a suitable node has free addresses must be waiting for
// something else. It makes another node grow, and eventually none.
func TestUnusedAddressesAreOfNoUse(t *testing.T) {
	c, now := offering(), fixtures.Noon()
	c.State.Ledger.Upsert(fixtures.Block("10.0.0.4/30", "p", "m", 2))
	c.join("m", "10.0.0.5", "10.0.0.6", "192.0.2.1") // one more than its agent uses
	c.wait(now, unscheduledPod("1", lacksIPv4))
	expect := func(at time.Duration, want string, again time.Duration) {
		t.Helper()
		a := c.Assign(nodes("m", "n"), now.Add(at))
		got := fmt.Sprint(expected(a))
		if got != want || !a.RequeueAt.Equal(now.Add(again)) && again != 0 || again == 0 && !a.RequeueAt.IsZero() {
			t.Errorf("after %s %s, again %s; want %s, again after %s", at, got, a.RequeueAt, want, again)
		}
	}
	expect(0, "map[m:[1 0]]", unusedFor)
	expect(unusedFor-1, "map[m:[1 0]]", unusedFor)
	expect(unusedFor, "map[n:[1 0]]", 0)
	c.join("m", "10.0.0.5", "10.0.0.6", "192.0.2.1", "192.0.2.2") // something has changed on m
	expect(unusedFor, "map[m:[1 0]]", 2*unusedFor)
	c.join("n", "10.0.0.1", "10.0.0.2", "192.0.2.3") // n has grown
	expect(unusedFor+1, "map[m:[1 0]]", 2*unusedFor)
	expect(2*unusedFor, "map[n:[1 0]]", 2*unusedFor+1)
	expect(2*unusedFor+1, "map[]", 0)
}

// Nor do other pods that come and go on that node keep the pod waiting for good, unless they leave it too few.
func TestUnusedAddressesBesideChurn(t *testing.T) {
	for name, test := range map[string]struct {
		more []int64 // requests of further containers
		free [2]int  // in turn
		want string
	}{
		"always enough":        {nil, [2]int{1, 2}, "map[n:[1 0]]"},
		"enough for several":   {[]int64{1}, [2]int{2, 3}, "map[n:[2 0]]"},
		"too few now and then": {nil, [2]int{1, 0}, "map[m:[1 0]]"},
		"too few for several":  {[]int64{1}, [2]int{2, 1}, "map[m:[2 0]]"},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := offering(), fixtures.Noon()
			c.State.Ledger.Upsert(fixtures.Block("10.0.0.4/30", "p", "m", 2))
			c.wait(now, fixtures.Requesting(unscheduledPod("1", lacksIPv4), test.more...))
			addrs := []string{"10.0.0.5", "10.0.0.6", "192.0.2.1", "192.0.2.2", "192.0.2.3"}
			for i := range int(unusedAtMost/(10*time.Second)) + 1 {
				c.join("m", addrs[:2+test.free[i%2]]...)
				now = now.Add(10 * time.Second)
				c.Assign(nodes("m", "n"), now)
			}
			if diff := cmp.Diff(test.want, fmt.Sprint(expected(c.Assign(nodes("m", "n"), now)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetNeeds(t *testing.T) {
	u := NewUnscheduled()
	room := func(n int) NodeNeeds { return NodeNeeds{Expected: [2]int{n, 0}} }
	back := func(cidrs ...string) NodeNeeds { return NodeNeeds{Recall: fixtures.Prefixes(cidrs...)} }
	for _, step := range []struct {
		next map[NodeCiliumPool]NodeNeeds
		want []string
	}{
		{map[NodeCiliumPool]NodeNeeds{defaultPoolOn("a"): room(1), defaultPoolOn("b"): room(2)}, []string{"a", "b"}},
		{map[NodeCiliumPool]NodeNeeds{defaultPoolOn("a"): room(1), defaultPoolOn("b"): room(2)}, nil},
		{map[NodeCiliumPool]NodeNeeds{defaultPoolOn("a"): room(2), defaultPoolOn("c"): back("10.0.0.0/30")}, []string{"a", "b", "c"}},
		{map[NodeCiliumPool]NodeNeeds{defaultPoolOn("a"): room(2), defaultPoolOn("c"): back("10.0.0.4/30")}, []string{"c"}},
		{map[NodeCiliumPool]NodeNeeds{}, []string{"a", "c"}},
	} {
		if diff := cmp.Diff(step.want, u.SetNeeds(step.next)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", step.next, diff)
		}
	}
	if u.Any() {
		t.Error("something is needed still")
	}
}

// A node's state contains the expected addresses, and that the node offers addresses.
func TestSnapshotExpectsPods(t *testing.T) {
	c := offering()
	c.Unscheduled.SetNeeds(map[NodeCiliumPool]NodeNeeds{defaultPoolOn("n"): {Expected: [2]int{3, 0}, Recall: fixtures.Prefixes("10.0.0.0/30")}})
	node := nodes("n")[0]
	s := c.State.Snapshot("n", &node, fixtures.Noon())
	if got := s.Shares[0].State; got.Expected != 3 || !got.Offers || len(got.Recall) != 1 {
		t.Errorf("expects %d, offers %t, to return %v; want 3, true, a block", got.Expected, got.Offers, got.Recall)
	}
	// Pods bound meanwhile no longer count, and pods deleted meanwhile do not add to the
	// expectation.
	for i, want := range []int{2, 1, 0, 0} {
		c.State.Pods.Set(state.ReadPod(fixtures.Requesting(fixtures.Pod(fmt.Sprint(i), fmt.Sprint(i), "n"), 1)), fixtures.Noon())
		if got := c.State.Snapshot("n", &node, fixtures.Noon()).Shares[0].State.Expected; got != want {
			t.Errorf("after %d pods were bound: expects %d, want %d", i+1, got, want)
		}
	}
	c.Unscheduled.SetNeeds(map[NodeCiliumPool]NodeNeeds{defaultPoolOn("n"): {Expected: [2]int{3, 0}, Requested: [2]int{5, 0}}})
	if got := c.State.Snapshot("n", &node, fixtures.Noon()).Shares[0].State.Expected; got != 3 {
		t.Errorf("one bound pod is gone: expects %d, want 3", got)
	}
	c.State.Unscheduled = nil
	if got := c.State.Snapshot("n", &node, fixtures.Noon()).Shares[0].State; got.Expected != 0 || got.Offers {
		t.Errorf("without scheduling: expects %d, offers %t", got.Expected, got.Offers)
	}
}

// Pods that request addresses of a Cilium pool make a node grow that its PodIPPools serve, and other
// pods do not count on these addresses.
func TestAssignToCiliumPools(t *testing.T) {
	c, now, d := clusterOf(), fixtures.Noon(), fixtures.Defaults()
	d.CiliumPools, d.WholeBlocks = true, true
	c.State.Defaults, c.State.Pools = d, state.NewPools(d, c.State.Ledger)
	c.State.Pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	c.State.Pools.Set(fixtures.BluePool("10.8.0.0/28"))
	c.State.Ledger.UpsertCiliumNode(ciliumnode.MultiPool.View(fixtures.Pooled(2, "10.0.0.0/30")))
	for i, pool := range []string{"", "blue", "blue", "green"} {
		c.wait(now, unscheduledPod(fmt.Sprint(i), "0/1 nodes are available: 1 Insufficient "+string(state.OfferResource(ipalloc.IPv4, pool))+".", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{state.OfferResource(ipalloc.IPv4, pool): resource.MustParse("1")}
		}))
	}
	a := c.Assign(nodes("n"), now)
	if got, want := fmt.Sprint(expected(a), a.Pods, a.Growing), "map[n:[1 0] n blue:[2 0]] 4 3"; got != want {
		t.Errorf("assigned %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(c.Unscheduled.CiliumPools()), "[blue green]"; got != want {
		t.Errorf("pools %s, want %s", got, want)
	}
}

// BenchmarkAssignToCiliumPool assigns 1,000 pods of a Cilium pool to 20,000 nodes, of which none has
// a block of it.
func BenchmarkAssignToCiliumPool(b *testing.B) {
	c, now, d := clusterOf(), fixtures.Noon(), fixtures.Defaults()
	d.CiliumPools, d.WholeBlocks = true, true
	c.State.Defaults, c.State.Pools = d, state.NewPools(d, c.State.Ledger)
	c.State.Pools.Set(fixtures.BluePool("10.8.0.0/16"))
	names := make([]string, 20000)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
		cn := fixtures.Pooled(2, fmt.Sprintf("10.%d.%d.0/28", i/256, i%256))
		cn.Name = names[i]
		c.State.Ledger.UpsertCiliumNode(ciliumnode.MultiPool.View(cn))
	}
	for i := range 1000 {
		c.wait(now, unscheduledPod(fmt.Sprint(i), "0/1 nodes are available: 1 Insufficient blue.cilium-pool.io/ipv4.", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{state.OfferResource(ipalloc.IPv4, "blue"): resource.MustParse("1")}
		}))
	}
	all := nodes(names...)
	for b.Loop() {
		if a := c.Assign(all, now); a.Growing != 1000 {
			b.Fatalf("%d pods find room", a.Growing)
		}
	}
}

// Identical pods form one kind; otherwise their number would make an assignment expensive.
func TestAlikePodsAreOneKind(t *testing.T) {
	c, now := offering(), fixtures.Noon()
	for i := range 20 {
		c.wait(now, unscheduledPod(fmt.Sprint(i), lacksIPv4, func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"zone": fmt.Sprint("z", i%2)}
			p.Labels = map[string]string{"i": fmt.Sprint(i)}
		}))
	}
	kinds, _ := c.Unscheduled.waiting(now)
	if len(kinds) != 2 || kinds[0].pods != 10 {
		t.Errorf("%d kinds, want 2 of 10 pods", len(kinds))
	}
	for i := range 20 {
		c.Unscheduled.Delete(types.UID(fmt.Sprint(i)))
	}
	if kinds, _ := c.Unscheduled.waiting(now); len(kinds) > 0 {
		t.Errorf("%d kinds are left", len(kinds))
	}
}
