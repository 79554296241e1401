package scheduling

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// recalling returns a cluster with a full pool of blocks of two addresses: one on node n, with pods
// waiting for it, two on a and three on b. The agents use one address each.
func recalling() *Cluster {
	c := clusterOf()
	c.Agents.Set(state.ReadAgent(fixtures.AgentPod("agent", "c", true)), fixtures.Noon())
	c.Pools.Set(tight("p", "10.0.0.0/28", "10.0.1.0/29"))
	for i, node := range []string{"n", "a", "a", "b", "b", "b"} {
		cidr := fmt.Sprintf("10.0.%d.%d/30", i/4, i%4*4)
		c.Ledger.Upsert(fixtures.Block(cidr, "p", node, i+1))
	}
	c.join("n", "10.0.0.1", "10.0.0.2")
	c.joinIdle("a", "10.0.0.5", "10.0.0.6", "10.0.0.9", "10.0.0.10")
	c.joinIdle("b", "10.0.0.13", "10.0.0.14", "10.0.1.1", "10.0.1.2", "10.0.1.5", "10.0.1.6")
	return c
}

// tight returns a pool for nodes that keep no address free.
func tight(name string, ranges ...string) *v1alpha1.PodIPPool {
	return fixtures.Edited(fixtures.PodIPPool(name, 1, ranges...), func(s *v1alpha1.PodIPPoolSpec) {
		s.Expand.MinFree, s.Expand.ThresholdPercent = ptr.To[int32](0), ptr.To[int32](100)
	})
}

// joinIdle adds a node with a settled agent that uses the first two addresses.
func (c *Cluster) joinIdle(name string, addrs ...string) {
	c.join(name, addrs...)
	agent := fixtures.AgentPod("agent-"+name, "c", true)
	agent.Spec.NodeName = name
	c.Agents.Set(state.ReadAgent(agent), fixtures.Noon())
}

// claimFreed has b return its last block, and a node claim that: its write is under way.
func (c *Cluster) claimFreed(node string) {
	b, _ := c.Ledger.Block(fixtures.Prefix("10.0.1.4/30"))
	c.join("b", "10.0.0.13", "10.0.0.14", "10.0.1.1", "10.0.1.2")
	c.Ledger.Remove(b)
	if _, _, err := c.Ledger.Claim(ipalloc.IPv4, node, "", []*crd.Pool{c.Pools.Get("p")}); err != nil {
		panic(err)
	}
}

func TestRecall(t *testing.T) {
	now := fixtures.Noon()
	wait := func(n int) func(*Cluster, []corev1.Node) {
		return func(c *Cluster, _ []corev1.Node) {
			for i := range n {
				c.wait(now, unscheduledPod(fmt.Sprint(i), lacksIPv4, func(p *corev1.Pod) {
					p.Spec.NodeSelector = map[string]string{"name": "n"}
				}))
			}
		}
	}
	leaves := func(cidr string, phase ipalloc.Phase) func(*Cluster, []corev1.Node) {
		return func(c *Cluster, nodes []corev1.Node) {
			wait(1)(c, nodes)
			b, _ := c.Ledger.Block(fixtures.Prefix(cidr))
			b.Reason = expand.Reclaim
			c.Ledger.Upsert(fixtures.At(b, 20, phase))
		}
	}
	tests := map[string]struct {
		spoil func(*Cluster, []corev1.Node)
		want  string
	}{
		"no pod waits":                     {func(*Cluster, []corev1.Node) {}, ""},
		"one block, of who can spare most": {wait(2), "b 10.0.1.4/30"},
		"no more than are missing":         {wait(4), "b 10.0.1.4/30 10.0.1.0/30"},
		"all that can be spared":           {wait(10), "a 10.0.0.8/30; b 10.0.1.4/30 10.0.1.0/30"},
		"a cordoned node comes first": {func(c *Cluster, nodes []corev1.Node) {
			wait(1)(c, nodes)
			nodes[0].Spec.Unschedulable = true
		}, "a 10.0.0.8/30"},
		"one comes back already":       {leaves("10.0.1.4/30", ipalloc.Draining), ""},
		"one cools down":               {leaves("10.0.1.4/30", ipalloc.CoolingDown), ""},
		"one drains whose pods run on": {leaves("10.0.0.12/30", ipalloc.Draining), "a 10.0.0.8/30"},
		"one came back, and the node is claiming it": {func(c *Cluster, nodes []corev1.Node) {
			wait(2)(c, nodes)
			c.claimFreed("n")
		}, ""},
		"one came back, and another node is claiming it": {func(c *Cluster, nodes []corev1.Node) {
			wait(2)(c, nodes)
			c.claimFreed("a")
		}, "a 10.0.0.8/30"},
		"the node is paused": {func(c *Cluster, nodes []corev1.Node) {
			wait(10)(c, nodes)
			nodes[1].Annotations = map[string]string{"cilium-pool.io/paused": "true"}
		}, "a 10.0.0.8/30"},
		"of another pool": {func(c *Cluster, nodes []corev1.Node) {
			wait(10)(c, nodes)
			c.Pools.Set(tight("p", "10.0.0.0/28"))
			c.Pools.Set(tight("q", "10.0.1.0/29"))
			for _, cidr := range []string{"10.0.1.0/30", "10.0.1.4/30"} {
				b, _ := c.Ledger.Block(fixtures.Prefix(cidr))
				b.Pool, b.ResourceVersion = "q", "21"
				c.Ledger.Upsert(b)
			}
		}, "a 10.0.0.8/30"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, all := recalling(), nodes("a", "b", "n")
			for i := range all {
				all[i].Labels = map[string]string{"name": all[i].Name}
			}
			test.spoil(c, all)
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
	before := c.Ledger.Turnover()
	a := c.Assign(all, now)
	c.claimFreed("n") // freed and claimed: it moved twice
	a.Needs, a.RequeueAt = map[string]NodeNeeds{}, time.Time{}
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
	c.Agents = state.NewAgents(time.Minute)
	c.joinIdle("b", "10.0.0.13", "10.0.0.14", "10.0.1.1", "10.0.1.2", "10.0.1.5", "10.0.1.6")
	all[2].Labels = map[string]string{"name": "n"}
	c.wait(now, unscheduledPod("1", lacksIPv4, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n"} }))
	long := now.Add(unusedFor)
	if a := c.Assign(all, long); len(a.Needs["b"].Recall) > 0 || !a.RequeueAt.Equal(now.Add(time.Minute)) {
		t.Errorf("at first: %v is recalled, again at %s", a.Needs["b"].Recall, a.RequeueAt)
	}
	if a := c.Assign(all, now.Add(time.Minute)); len(a.Needs["b"].Recall) != 1 {
		t.Errorf("once settled: %v is recalled", a.Needs["b"].Recall)
	}
}

// While pods wait for blocks of a full pool, that pool is scarce for its nodes, except for
// a node that can claim from another pool.
func TestScarce(t *testing.T) {
	c, all, now := recalling(), nodes("a", "b", "n"), fixtures.Noon()
	scarce := func() bool {
		a := c.Assign(all, now)
		c.Unscheduled.SetScarce(a.Scarce)
		return c.Snapshot("a", &all[0], now).Shares[0].State.Scarce
	}
	if scarce() {
		t.Error("no pod waits")
	}
	all[2].Labels = map[string]string{"name": "n"}
	c.wait(now, unscheduledPod("1", lacksIPv4, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n"} }))
	if !scarce() {
		t.Error("a pod waits for a block")
	}
	c.Pools.Set(tight("q", "10.0.2.0/29"))
	if scarce() {
		t.Error("another pool has blocks")
	}
}

// However many sets of pools nodes wait for, a node is asked once for its spare blocks.
func TestRecallAsksEachNodeOnce(t *testing.T) {
	c, all, asked := recalling(), nodes("a", "b", "n"), 0
	c.Taken = func(string, ipalloc.Family) int { asked++; return 0 } // by each Snapshot, as all blocks are of p
	a := &Assignment{Needs: map[string]NodeNeeds{}}
	for i := range 3 {
		a.FirstBlocks = append(a.FirstBlocks, FirstBlock{Pools: [2][]string{{"p", fmt.Sprint("q", i)}}})
	}
	c.recall(a, all, nil, fixtures.Noon())
	if got := len(a.Needs["a"].Recall) + len(a.Needs["b"].Recall); asked != len(all) || got != 3 {
		t.Errorf("%d nodes return %d blocks after %d Snapshots, want 3 after %d", len(a.Needs), got, asked, len(all))
	}
}
