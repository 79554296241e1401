package main

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// scenario is a sequence of steps that all succeed unless a fault is injected.
type scenario struct {
	name, about string
	// change, if set, changes the world.
	change func(*world.Config)
	steps  []step
	// from is the first step with points; those before it prepare it.
	from int
}

// step is an action of users and its expected result.
type step struct {
	name  string
	do    func(*driver)
	until func(view) bool
}

// world is two operators, two nodes, and a pool of four blocks with two addresses each.
func (s scenario) world() world.Config {
	c := world.Config{
		Nodes: 2, PodsPerNode: 2, Operators: 2, UpdateRate: 15 * time.Second,
		Faults: world.Kill | world.KillAfterWrite | world.Unheard | world.Fail | world.Lag | world.Relist | world.StaleList |
			world.Freeze | world.AgentKill | world.NodeGone | world.CiliumNodeGone | world.BlockEdits | world.PoolEdits,
		Settings: world.Settings(), Pools: []*v1alpha1.PodIPPool{world.Pool("main", 0, 30, "10.0.0.0/29")},
	}
	c.Pools[0].Spec.IPv4.CIDRs = append(c.Pools[0].Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.0.0.8/29"})
	c.Settings.Defaults.Policy.IdleFor = 30 * time.Second
	c.Upgraded = c.Settings
	if s.change != nil {
		s.change(&c)
	}
	c.Upgraded.Mode = c.Settings.Mode
	return c
}

// view is the input of conditions: the world, and the block that a step has named.
type view struct {
	*world.World
	block string
}

// blocks counts the blocks of a node with a condition, or all for "".
func (v view) blocks(node, condition string) int {
	n := 0
	for _, b := range v.Blocks() {
		if b.Spec.NodeName == node && (condition == "" || meta.IsStatusConditionTrue(b.Status.Conditions, condition)) {
			n++
		}
	}
	return n
}

// up reports whether the agents of both nodes accept pods.
func up(v view) bool { return v.Serves("n1") && v.Serves("n2") }

func join() step {
	return step{"both nodes have addresses, and their agents run", nil, func(v view) bool {
		return up(v) && v.blocks("n1", "") > 0 && v.blocks("n2", "") > 0
	}}
}

func pod(slot string) func(*driver) {
	return func(d *driver) { d.try(world.PodNew, "n1", slot) }
}

func hasAddress(slots ...string) func(view) bool {
	return func(v view) bool {
		for _, slot := range slots {
			if !v.HasAddress("n1", slot) {
				return false
			}
		}
		return true
	}
}

// grow gives n1 two pods and with them a second block.
func grow() step {
	return step{"two pods have addresses, and the node has more than one block", func(d *driver) {
		pod("p1")(d)
		pod("p2")(d)
	}, func(v view) bool { return hasAddress("p1", "p2")(v) && v.blocks("n1", "") > 1 }}
}

func deletePods(d *driver) {
	d.try(world.PodDelete, "n1", "p1")
	d.try(world.PodDelete, "n1", "p2")
}

// reclaim deletes the pods and waits until the node is back to its first blocks.
func reclaim(first int) step {
	return step{"the node is back to its first blocks", deletePods, func(v view) bool { return v.blocks("n1", "") == first }}
}

func multiPool(c *world.Config) {
	c.Settings.Mode, c.Reserve = ciliumnode.MultiPool, map[string]int{crd.DefaultCiliumPool: 1}
}

func kubernetes(c *world.Config) {
	c.Settings.Mode = ciliumnode.Kubernetes
	c.Pools[0].Spec.IPv4.BlockSize = 29
	c.Pools[0].Spec.IPv4.CIDRs = []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/28"}, {CIDR: "10.0.0.16/28"}}
}

func dualStack(c *world.Config) {
	c.Families = []agent.Family{agent.IPv4, agent.IPv6}
	c.Pools[0].Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/124"}}}
}

// switching is dual stack where users switch the agents' IPv6 off and on.
func switching(c *world.Config) {
	dualStack(c)
	c.SwitchesFamilies = true
}

func clusterPool(c *world.Config) {
	c.Pools[0].Spec.IPv4.CIDRs = append(c.Pools[0].Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.0.4.0/27"})
	c.Move = &world.Move{From: adopt.ClusterPool, Given: [][]netip.Prefix{
		{netip.MustParsePrefix("10.0.4.0/28")}, {netip.MustParsePrefix("10.0.4.16/28")},
	}}
}

func scenarios() []scenario {
	return []scenario{
		{name: "join", about: "two new nodes get their first blocks", steps: []step{join()}},
		{name: "grow", about: "pods need a second block", steps: []step{join(), grow()}, from: 1},
		{name: "reclaim", about: "an idle block is marked, released, cools down and returns", steps: []step{join(), grow(), reclaim(1)}, from: 2},
		{name: "drain", about: "a block in use is deleted; its pod goes later", steps: []step{join(), grow(), drainBlock(), podGoes()}, from: 2},
		{name: "undo", about: "demand returns while a block drains", steps: []step{join(), grow(), drainBegins(), demandReturns()}, from: 2},
		{name: "drain-range", about: "a range is drained under a running pod", steps: []step{join(), grow(), drainRange(), reclaim(1)}, from: 2},
		{name: "node-gone", about: "a machine is lost with its Node, and comes back as a new one", steps: []step{join(), grow(), nodeGone(), nodeReturns()}, from: 2},
		{name: "ciliumnode-deleted", about: "the CiliumNode of a node with pods is deleted by hand", steps: []step{join(), grow(), ciliumNodeDeleted(), reclaim(1)}, from: 2},
		{name: "adoption", about: "nodes move from cluster-pool mode", change: clusterPool, steps: adoption(), from: 1},
		{name: "dual-stack", about: "join, grow and reclaim with both families", change: dualStack, steps: []step{join(), grow(), reclaim(2)}},
		{name: "family-off", about: "IPv6 is taken out of an agent, its range drained, and IPv6 is put in again", change: switching,
			steps: []step{join(), growBoth(), familyOff(), familyDrained(), familyOn()}, from: 2},
		{name: "multi-pool", about: "the same in multi-pool mode", change: multiPool, steps: []step{join(), growWhole(), deleted()}},
		{name: "kubernetes", about: "join, and a lost machine, in kubernetes mode", change: kubernetes, steps: []step{join(), nodeGone(), nodeReturns()}},
	}
}

func drainBlock() step {
	return step{"the block of a pod drains", func(d *driver) {
		d.block = d.w.BlockOf("n1", "p1")
		d.try(world.BlockDelete, "people", d.block)
	}, func(v view) bool { return v.blocks("n1", v1alpha1.BlockDraining) > 0 }}
}

func podGoes() step {
	return step{"the block is gone", deletePods, func(v view) bool {
		return v.API().Get(world.KindBlock, v.block) == nil && v.blocks("n1", v1alpha1.BlockDraining) == 0
	}}
}

func drainBegins() step {
	return step{"a block drains", deletePods, func(v view) bool {
		return v.blocks("n1", v1alpha1.BlockDraining) > 0 || v.blocks("n1", "") == 1
	}}
}

func demandReturns() step {
	g := grow()
	return step{"the pods have addresses, and no block drains", func(d *driver) { g.do(d) }, func(v view) bool {
		return g.until(v) && v.blocks("n1", v1alpha1.BlockDraining) == 0
	}}
}

func drainRange() step {
	return step{"no block in service is left in the range", func(d *driver) { d.do(world.PoolEdit, "people", "drain") }, func(v view) bool {
		return hasAddress("p1", "p2")(v)
	}}
}

func nodeGone() step {
	return step{"the node's blocks are free", func(d *driver) { d.try(world.NodeOff, "n1", "") }, func(v view) bool { return v.blocks("n1", "") == 0 }}
}

func nodeReturns() step {
	return step{"the new node has addresses, and its agent runs", func(d *driver) { d.try(world.NodeMake, "n1", "") }, func(v view) bool {
		return up(v) && v.blocks("n1", "") > 0
	}}
}

func ciliumNodeDeleted() step {
	return step{"the CiliumNode is back with the addresses in use", func(d *driver) { d.try(world.CNDelete, "n1", "") }, func(v view) bool {
		cn := v.CiliumNode("n1")
		return cn != nil && len(cn.Status.IPAM.Used) >= 3
	}}
}

func growWhole() step {
	return step{"two pods have addresses", grow().do, hasAddress("p1", "p2")}
}

func deleted() step {
	return step{"the pods are gone", deletePods, func(v view) bool { return !v.HasAddress("n1", "p1") && !v.HasAddress("n1", "p2") }}
}

// adoption migrates both nodes as docs/migration.md describes.
func adoption() []step {
	idle := func(v view) bool { return v.Can(world.Action{Verb: world.Migrate, Who: "people", What: "start"}) }
	migrate := func(command string) func(*driver) {
		return func(d *driver) { d.do(world.Migrate, "people", command) }
	}
	return []step{
		{"the agents run in their old mode, and a pod has an address", pod("p1"), func(v view) bool { return up(v) && hasAddress("p1")(v) }},
		{"migrate start has ended", migrate("start"), idle},
		{"the agents run in crd mode", func(d *driver) {
			d.try(world.Configure, "n1", "crd")
			d.try(world.Configure, "n2", "crd")
		}, func(v view) bool {
			return up(v) && len(v.CiliumNode("n1").Status.IPAM.Used) > 0 && len(v.CiliumNode("n2").Status.IPAM.Used) > 0
		}},
		{"migrate finish has ended", migrate("finish"), idle},
	}
}
