package scheduling

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// recalling returns a cluster with a full pool of blocks of two addresses: one on node n, with pods
// waiting for it, two on a and three on b. The agents use one address each.
func recalling() *Offering {
	c := clusterOf()
	c.State.Agents.Set(state.ReadAgent(fixtures.AgentPod("agent", "c", true)), fixtures.Noon())
	c.State.Pools.Set(tight("p", "10.0.0.0/28", "10.0.1.0/29"))
	for i, node := range []string{"n", "a", "a", "b", "b", "b"} {
		cidr := fmt.Sprintf("10.0.%d.%d/30", i/4, i%4*4)
		c.State.Ledger.Upsert(fixtures.Block(cidr, "p", node, i+1))
	}
	c.join("n", "10.0.0.1", "10.0.0.2")
	c.joinIdle("a", "10.0.0.5", "10.0.0.6", "10.0.0.9", "10.0.0.10")
	c.joinIdle("b", "10.0.0.13", "10.0.0.14", "10.0.1.1", "10.0.1.2", "10.0.1.5", "10.0.1.6")
	return c
}

// tight returns a pool for nodes that keep no address free.
func tight(name string, ranges ...string) *v1alpha1.PodIPPool {
	return fixtures.Edited(fixtures.PodIPPool(name, 1, ranges...), func(s *v1alpha1.PodIPPoolSpec) {
		s.Expand.MinFreeAddresses, s.Expand.ThresholdPercent = ptr.To[int32](0), ptr.To[int32](100)
	})
}

// joinIdle adds a node with a settled agent that uses the first two addresses.
func (c *Offering) joinIdle(name string, addrs ...string) {
	c.join(name, addrs...)
	agent := fixtures.AgentPod("agent-"+name, "c", true)
	agent.Spec.NodeName = name
	c.State.Agents.Set(state.ReadAgent(agent), fixtures.Noon())
}

// claimFreed has b return its last block, and a node claim that: its write is under way.
func (c *Offering) claimFreed(node string) {
	b, _ := c.State.Ledger.Block(fixtures.Prefix("10.0.1.4/30"))
	c.join("b", "10.0.0.13", "10.0.0.14", "10.0.1.1", "10.0.1.2")
	c.State.Ledger.Remove(b)
	if _, _, err := c.State.Ledger.Claim(ipalloc.IPv4, node, "", []*crd.Pool{c.State.Pools.Get("p")}); err != nil {
		panic(err)
	}
}

// defaultPoolOn is the default pool on a node.
func defaultPoolOn(node string) NodeCiliumPool { return NodeCiliumPool{Node: node} }

// sortedNodes returns the nodes with needs.
func sortedNodes(needs map[NodeCiliumPool]NodeNeeds) (nodes []string) {
	for on := range needs {
		nodes = append(nodes, on.Node)
	}
	slices.Sort(nodes)
	return nodes
}

// recalls formats the blocks that nodes should return, by node.
func recalls(a Assignment) string {
	var out []string
	for _, node := range sortedNodes(a.Needs) {
		if recall := a.Needs[defaultPoolOn(node)].Recall; len(recall) > 0 {
			out = append(out, node+" "+strings.Trim(fmt.Sprint(recall), "[]"))
		}
	}
	return strings.Join(out, "; ")
}

// Pods wait for node n, or for another. Nodes x and y have no block, and need one if their pools have
// none left.
func TestRecall(t *testing.T) {
	now := fixtures.Noon()
	type spoil = func(*Offering, []corev1.Node)
	podsFor := func(node string, n int) spoil {
		return func(c *Offering, _ []corev1.Node) {
			for i := range n {
				c.wait(now, unscheduledPod(fmt.Sprint(i), lacksIPv4, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": node} }))
			}
		}
	}
	first := func(names ...string) spoil {
		return func(c *Offering, _ []corev1.Node) {
			for _, name := range names {
				c.join(name)
				c.Unscheduled.SetWithoutBlock(name, true)
			}
		}
	}
	leaves := func(cidr string, phase ipalloc.Phase) spoil {
		return func(c *Offering, _ []corev1.Node) {
			b, _ := c.State.Ledger.Block(fixtures.Prefix(cidr))
			b.Reason = expand.Reclaim
			c.State.Ledger.Upsert(fixtures.At(b, 20, phase))
		}
	}
	claims := func(node string) spoil { return func(c *Offering, _ []corev1.Node) { c.claimFreed(node) } }
	set := func(pools ...*v1alpha1.PodIPPool) spoil {
		return func(c *Offering, _ []corev1.Node) {
			for _, pool := range pools {
				c.State.Pools.Set(pool)
			}
		}
	}
	edit := func(do func(*corev1.Node), i int) spoil {
		return func(_ *Offering, nodes []corev1.Node) { do(&nodes[i]) }
	}
	cordoned := set(fixtures.Edited(tight("p", "10.0.0.0/28", "10.0.1.0/29"), func(s *v1alpha1.PodIPPoolSpec) {
		s.IPv4.CIDRs[1].AllocationPolicy = v1alpha1.AllocationCordon
	}))
	dead := func(c *Offering, _ []corev1.Node) {
		agent := fixtures.AgentPod("agent-b", "c", false)
		agent.Spec.NodeName = "b"
		c.State.Agents.Set(state.ReadAgent(agent), now)
	}
	withheld := func(c *Offering, _ []corev1.Node) {
		c.State.Ledger.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "n"}, []netip.Prefix{fixtures.Prefix("10.0.1.5/32")})
	}
	tomorrow := func(c *Offering, _ []corev1.Node) {
		b, _ := c.State.Ledger.Block(fixtures.Prefix("10.0.1.4/30"))
		b.Since = now.Add(24 * time.Hour)
		c.State.Ledger.Upsert(fixtures.At(b, 21, ipalloc.CoolingDown))
	}
	const a, b, x = 0, 1, 3
	paused := func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"} }
	tests := map[string]struct {
		spoil []spoil
		want  string
	}{
		"no pod waits":                                {nil, ""},
		"one block, of who can spare most":            {[]spoil{podsFor("n", 2)}, "b 10.0.1.4/30"},
		"no more than are missing":                    {[]spoil{podsFor("n", 4)}, "b 10.0.1.4/30 10.0.1.0/30"},
		"all that can be spared":                      {[]spoil{podsFor("n", 10)}, "a 10.0.0.8/30; b 10.0.1.4/30 10.0.1.0/30"},
		"a cordoned node comes first":                 {[]spoil{podsFor("n", 1), edit(func(n *corev1.Node) { n.Spec.Unschedulable = true }, a)}, "a 10.0.0.8/30"},
		"one comes back already":                      {[]spoil{podsFor("n", 1), leaves("10.0.1.4/30", ipalloc.Draining)}, ""},
		"one cools down":                              {[]spoil{podsFor("n", 1), leaves("10.0.1.4/30", ipalloc.CoolingDown)}, ""},
		"one drains whose pods run on":                {[]spoil{podsFor("n", 1), leaves("10.0.0.12/30", ipalloc.Draining)}, "a 10.0.0.8/30"},
		"the node is claiming one that came back":     {[]spoil{podsFor("n", 2), claims("n")}, ""},
		"another node is claiming one that came back": {[]spoil{podsFor("n", 2), claims("a")}, "a 10.0.0.8/30"},
		"the node is paused":                          {[]spoil{podsFor("n", 10), edit(paused, b)}, "a 10.0.0.8/30"},
		"of another pool": {[]spoil{podsFor("n", 10), set(tight("p", "10.0.0.0/28"), tight("q", "10.0.1.0/29")), func(c *Offering, _ []corev1.Node) {
			for _, cidr := range []string{"10.0.1.0/30", "10.0.1.4/30"} {
				b, _ := c.State.Ledger.Block(fixtures.Prefix(cidr))
				b.Pool, b.ResourceVersion = "q", "21"
				c.State.Ledger.Upsert(b)
			}
		}}, "a 10.0.0.8/30"},

		"not of a CIDR that assigns none":        {[]spoil{first("x"), cordoned}, "a 10.0.0.8/30"},
		"one of such a CIDR cools down":          {[]spoil{first("x"), cordoned, leaves("10.0.1.4/30", ipalloc.CoolingDown)}, "a 10.0.0.8/30"},
		"one with a withheld address stays":      {[]spoil{first("x"), withheld}, "a 10.0.0.8/30"},
		"one with a withheld address cools down": {[]spoil{first("x"), withheld, leaves("10.0.1.4/30", ipalloc.CoolingDown)}, "a 10.0.0.8/30"},
		"one drains without an agent":            {[]spoil{first("x"), leaves("10.0.1.4/30", ipalloc.Draining), dead}, "a 10.0.0.8/30"},
		"one cools down until the day after":     {[]spoil{first("x"), tomorrow}, "a 10.0.0.8/30"},

		"one comes back, and nodes of two lists of pools count on it": {
			[]spoil{podsFor("n", 2), first("x"), leaves("10.0.1.4/30", ipalloc.Draining), set(fixtures.Edited(tight("q", "10.0.2.0/30"), func(s *v1alpha1.PodIPPoolSpec) {
				s.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "x"}}
			})), func(c *Offering, _ []corev1.Node) { c.State.Ledger.Upsert(fixtures.Block("10.0.2.0/30", "q", "z", 20)) }},
			"a 10.0.0.8/30",
		},

		"a first block for x":              {[]spoil{first("x")}, "b 10.0.1.4/30"},
		"one block each":                   {[]spoil{first("x", "y")}, "b 10.0.1.4/30 10.0.1.0/30"},
		"x does not wait":                  {[]spoil{func(c *Offering, _ []corev1.Node) { c.join("x") }}, ""},
		"x has got one meanwhile":          {[]spoil{first("x"), func(c *Offering, _ []corev1.Node) { c.Unscheduled.SetWithoutBlock("x", false) }}, ""},
		"pods wait, too":                   {[]spoil{first("x"), podsFor("n", 2)}, "b 10.0.1.4/30 10.0.1.0/30"},
		"pods wait for x":                  {[]spoil{first("x"), podsFor("x", 1)}, "b 10.0.1.4/30 10.0.1.0/30"}, // its agent needs both addresses of the first
		"another pool has a block":         {[]spoil{first("x"), set(tight("q", "10.0.2.0/30"))}, ""},
		"another pool has one for two":     {[]spoil{first("x", "y"), set(tight("q", "10.0.2.0/30"))}, "b 10.0.1.4/30"},
		"one comes back for x already":     {[]spoil{first("x"), leaves("10.0.1.4/30", ipalloc.Draining)}, ""},
		"x is claiming one that came back": {[]spoil{first("x"), claims("x")}, ""},
		"x has a block that leaves": {[]spoil{first("x"), func(c *Offering, _ []corev1.Node) {
			c.State.Ledger.Upsert(fixtures.At(fixtures.Block("10.0.9.0/30", "gone", "x", 20), 20, ipalloc.CoolingDown))
		}}, ""},
		"x has addresses of no block": {[]spoil{first("x"), func(c *Offering, _ []corev1.Node) { c.join("x", "192.0.2.1", "192.0.2.2") }}, ""},
		"x is paused":                 {[]spoil{first("x"), edit(paused, x)}, ""},
		"Cilium does not run on x":    {[]spoil{first("x"), edit(func(n *corev1.Node) { n.Labels[v1alpha1.OptOutLabel] = "true" }, x)}, ""},
		"the labels of x are not final": {[]spoil{first("x"), set(fixtures.ZonedPool()), func(c *Offering, nodes []corev1.Node) {
			c.State.StartupTaints = map[string]bool{"late": true}
			nodes[x].Spec.Taints = []corev1.Taint{{Key: "late", Effect: corev1.TaintEffectNoSchedule}}
		}}, ""},
		"x is being deleted": {[]spoil{first("x"), edit(func(n *corev1.Node) {
			at := metav1.NewTime(now)
			n.DeletionTimestamp = &at
		}, x)}, ""},
		"reclaim is disabled": {[]spoil{first("x"), set(fixtures.Edited(tight("p", "10.0.0.0/28", "10.0.1.0/29"), func(s *v1alpha1.PodIPPoolSpec) {
			s.Reclaim.Policy = v1alpha1.ReclaimNever
		}))}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, all := recalling(), nodes("a", "b", "n", "x", "y")
			for i := range all {
				all[i].Labels = map[string]string{"name": all[i].Name}
			}
			for _, spoil := range test.spoil {
				spoil(c, all)
			}
			if got := recalls(c.Assign(all, now)); got != test.want {
				t.Errorf("%q is recalled, want %q", got, test.want)
			}
		})
	}
}

// Blocks that move while pods are assigned may have been missed, so that many fewer are recalled
// until they are assigned again.
func TestRecallWhileBlocksMove(t *testing.T) {
	c, all, now := recalling(), nodes("a", "b", "n"), fixtures.Noon()
	all[2].Labels = map[string]string{"name": "n"}
	for i := range 4 {
		c.wait(now, unscheduledPod(fmt.Sprint(i), lacksIPv4, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n"} }))
	}
	before := c.State.Ledger.Turnover()
	a := c.Assign(all, now)
	c.claimFreed("n") // freed and claimed: it moved twice
	a.Needs, a.RequeueAt = map[NodeCiliumPool]NodeNeeds{}, time.Time{}
	c.recall(&a, all, before, now)
	if got := recalls(a); got != "" || !a.RequeueAt.Equal(now.Add(recallDelay)) {
		t.Errorf("at first %q is recalled, again at %s", got, a.RequeueAt)
	}
	if a := c.Assign(all, now); recalls(a) != "a 10.0.0.8/30" || a.RequeueAt.Equal(now.Add(recallDelay)) {
		t.Errorf("then %q is recalled, again at %s", recalls(a), a.RequeueAt)
	}
}

// Waiting pods are assigned again when a node becomes able to return a block just because
// time has passed: its agent has settled.
func TestRecallOnceSettled(t *testing.T) {
	c, all, now := recalling(), nodes("a", "b", "n"), fixtures.Noon()
	c.State.Agents = state.NewAgents(time.Minute)
	c.joinIdle("b", "10.0.0.13", "10.0.0.14", "10.0.1.1", "10.0.1.2", "10.0.1.5", "10.0.1.6")
	all[2].Labels = map[string]string{"name": "n"}
	c.wait(now, unscheduledPod("1", lacksIPv4, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n"} }))
	long := now.Add(unusedFor)
	if a := c.Assign(all, long); len(a.Needs[defaultPoolOn("b")].Recall) > 0 || !a.RequeueAt.Equal(now.Add(time.Minute)) {
		t.Errorf("at first: %v is recalled, again at %s", a.Needs[defaultPoolOn("b")].Recall, a.RequeueAt)
	}
	if a := c.Assign(all, now.Add(time.Minute)); len(a.Needs[defaultPoolOn("b")].Recall) != 1 {
		t.Errorf("once settled: %v is recalled", a.Needs[defaultPoolOn("b")].Recall)
	}
}

// While pods, or a node without a block, wait for blocks of a full pool, no other node claims one as
// a reserve, except a node that can claim from another pool.
func TestScarce(t *testing.T) {
	c, all, now := recalling(), nodes("a", "b", "n", "x"), fixtures.Noon()
	all[2].Labels = map[string]string{"name": "n"}
	c.join("x")
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nobody waits", func() {}, false},
		{"a node waits", func() { c.Unscheduled.SetWithoutBlock("x", true) }, true},
		{"it has got one", func() { c.Unscheduled.SetWithoutBlock("x", false) }, false},
		{"a pod waits", func() {
			c.wait(now, unscheduledPod("1", lacksIPv4, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n"} }))
		}, true},
		{"another pool has blocks", func() { c.State.Pools.Set(tight("q", "10.0.2.0/29")) }, false},
	} {
		step.do()
		c.Unscheduled.SetScarce(c.Assign(all, now).Scarce)
		if got := c.State.Snapshot("a", &all[0], now).Shares[0].State.Scarce; got != step.want {
			t.Errorf("%s: scarce %t", step.name, got)
		}
	}
}

// However many sets of pools nodes wait for, a node is asked once for its spare blocks.
func TestRecallAsksEachNodeOnce(t *testing.T) {
	c, all, asked := recalling(), nodes("a", "b", "n"), 0
	c.State.TakenPercent = func(string, ipalloc.Family) int { asked++; return 0 } // by each Snapshot, as all blocks are of p
	a := &Assignment{Needs: map[NodeCiliumPool]NodeNeeds{}}
	for i := range 3 {
		a.FirstBlocks = append(a.FirstBlocks, FirstBlock{Pools: [2][]string{{"p", fmt.Sprint("q", i)}}})
	}
	c.recall(a, all, nil, fixtures.Noon())
	if got := len(a.Needs[defaultPoolOn("a")].Recall) + len(a.Needs[defaultPoolOn("b")].Recall); asked != len(all) || got != 3 {
		t.Errorf("%d nodes return %d blocks after %d Snapshots, want 3 after %d", len(a.Needs), got, asked, len(all))
	}
}

// The first block that a node has got is not recalled for the next node, and no node gets one at
// the expense of another node's needs: no block moves back and forth.
func TestFirstBlockStays(t *testing.T) {
	c, all, now := recalling(), nodes("a", "b", "n", "x", "y", "z"), fixtures.Noon()
	for _, name := range []string{"x", "y", "z"} {
		c.join(name)
		c.Unscheduled.SetWithoutBlock(name, true)
	}
	var moved []string
	for i, name := range []string{"x", "y", "z"} {
		a := c.Assign(all, now)
		donor := ""
		for on, needs := range a.Needs {
			if len(needs.Recall) > 0 && (donor == "" || on.Node < donor) {
				donor = on.Node
			}
		}
		if donor == "" {
			t.Fatalf("nothing is recalled for %s", name)
		}
		// The block moves from its node to the waiting one. The agent there starts and settles.
		b, _ := c.State.Ledger.Block(a.Needs[defaultPoolOn(donor)].Recall[0])
		moved = append(moved, fmt.Sprint(b.CIDR, " from ", donor))
		c.State.Ledger.Remove(b)
		c.State.Ledger.Upsert(fixtures.Block(b.CIDR.String(), "p", name, 30+i))
		c.joinIdle(name, b.CIDR.Addr().Next().String(), b.CIDR.Addr().Next().Next().String())
		c.Unscheduled.SetWithoutBlock(name, false)
	}
	for _, m := range moved {
		if strings.HasSuffix(m, "from x") || strings.HasSuffix(m, "from y") {
			t.Errorf("taken from a node that has just got its first: %q", moved)
		}
	}
	all = append(all, nodes("late")...)
	c.join("late")
	c.Unscheduled.SetWithoutBlock("late", true)
	if got := recalls(c.Assign(all, now)); got != "" {
		t.Errorf("%q is recalled of nodes that have what they need, and no more", got)
	}
}

// Blocks are assigned again, once, when a node begins or ceases to wait.
func TestWithoutBlockChanges(t *testing.T) {
	u, changes := NewUnscheduled(), 0
	u.Changed = func() { changes++ }
	for i, step := range []struct {
		waits bool
		want  int
	}{{false, 0}, {true, 1}, {true, 1}, {false, 2}, {false, 2}} {
		u.SetWithoutBlock("n", step.waits)
		if changes != step.want || u.Any() != step.waits {
			t.Errorf("step %d: %d changes, want %d; any: %t", i, changes, step.want, u.Any())
		}
	}
}
