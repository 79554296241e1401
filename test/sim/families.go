package main

import (
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// switchFamilies gives a world both families, of which people take IPv6 out of the first
// pool and off agents, and put it back.
func switchFamilies(c *world.Config) {
	c.Families, c.SwitchesFamilies = []agent.Family{agent.IPv4, agent.IPv6}, true
	c.Pools[0].Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 125, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/122"}}}
	c.Faults |= world.PoolEdits
}

// switchAll restarts all agents with IPv4 alone, or with both families.
func (d *director) switchAll(what string) {
	for _, node := range []string{"n1", "n2", "n3"} {
		d.one(is(world.AgentFamilies, node, what))
	}
}

// switchOff takes IPv6 off all agents and out of the pool, and puts it back, with time for
// blocks to leave in between.
func (d *director) switchOff() {
	family := is(world.PoolEdit, "people", "family")
	d.switchAll("ipv4")
	d.one(family)
	d.drive(3, never, is(world.PodDelete, "", ""))
	gone := d.w.Counts.Did["IPv6 goes from a pool"]
	for range 4 {
		d.drive(80, never, goesOn, passes, dies)
		if d.one(family); d.w.Counts.Did["IPv6 goes from a pool"] > gone {
			break
		}
	}
	d.drive(d.r.IntN(60), never, goesOn, passes, dies)
	d.one(family)
	if d.odds(.5) { // some agents go on naming the addresses that their routers had
		node, _ := d.nodes()
		d.one(is(world.AgentFamilies, node, "all"))
		d.drive(80, never, goesOn, passes)
	}
	d.switchAll("all")
}

// restartWith restarts an agent with IPv4 alone, or with both families.
func (d *director) restartWith(node, families string) {
	d.one(is(world.AgentFamilies, node, families))
	d.drive(10, func() bool { return d.w.Serves(node) }, lives(node))
}

// restartUnseen restarts the agent of a node with both families that the leader knows to
// run IPv4 alone. Neither its kubelet nor its report says so, until release is called.
func (d *director) restartUnseen() (leader, node string, ok bool) {
	leader, _, ok = d.awake()
	if !ok {
		return "", "", false
	}
	node, _ = d.nodes()
	d.switchAll("ipv4")
	d.drive(150, func() bool { return d.w.KnowsIPv6Off(leader, node) }, works(leader), lives(node), is(world.Pass, "time", "15s"))
	d.hold(func(a world.Action) bool {
		return a.Who == node && (a.Verb == world.AgentReport || a.Verb == world.AgentPod || a.Verb == world.PodStatus)
	})
	d.restartWith(node, "all")
	return leader, node, true
}

// switchBackUnseen has IPv6 drain just as an agent has come up with it. The agent gives pods
// addresses whose marks it does not see yet, and runs IPv4 alone again before its kubelet
// or its report says anything. Then it is asked, and comes back with IPv6.
func (d *director) switchBackUnseen() {
	leader, node, ok := d.restartUnseen()
	if !ok {
		return
	}
	d.hold(is(world.AgentSee, node, ""))
	d.one(is(world.PoolEdit, "people", "family"))
	d.drive(60, never, works(leader))
	d.pods(node, 4)
	d.drive(4, never, is(world.PodAdd, node, ""))
	d.restartWith(node, "ipv4")
	d.release()
	d.hold(is(world.AgentPod, node, ""))
	d.hold(is(world.PodStatus, node, ""))
	d.drive(60, func() bool { return !d.w.Marked(node) }, works(leader), is(world.AgentSee, node, ""), is(world.AgentReport, node, ""))
	d.release()
	if d.w.Marked(node) { // an agent that restarted now could lose pods (docs/reliability.md)
		d.drive(60, never, works(leader), lives(node), is(world.Pass, "time", "15s"))
		return
	}
	d.restartWith(node, "all")
}

// switchOnUnseen has IPv6 drain just as an agent has come up with it, of which neither its
// kubelet nor its report says anything yet. Or the agent has given pods IPv6 addresses, and
// runs IPv4 alone again.
func (d *director) switchOnUnseen() {
	leader, node, ok := d.restartUnseen()
	if !ok {
		return
	}
	again := d.odds(.5)
	if again {
		d.pods(node, 2)
		d.drive(4, never, is(world.PodAdd, node, ""))
		d.restartWith(node, "ipv4")
	}
	d.one(is(world.PoolEdit, "people", "family"))
	d.drive(40, never, works(leader), is(world.AgentSee, node, ""))
	d.release()
	if again {
		d.hold(is(world.AgentPod, node, ""))
		d.hold(is(world.PodStatus, node, ""))
		d.drive(40, never, works(leader), is(world.AgentSee, node, ""), is(world.AgentReport, node, ""))
		d.release()
		d.drive(60, never, works(leader), lives(node), is(world.Pass, "time", "15s"))
		if !d.w.Marked(node) { // else pods could be lost (docs/reliability.md)
			d.restartWith(node, "all")
		}
	}
}

// switchOffUnseen switches IPv6 off under a pod that the leader's watch does not show, drains
// it, and switches it on again.
func (d *director) switchOffUnseen() {
	leader, _, ok := d.awake()
	if !ok {
		return
	}
	node, _ := d.nodes()
	d.switchAll("all")
	d.drive(60, func() bool { return d.w.Serves(node) }, works(leader), lives(node), is(world.Pass, "time", "15s"))
	d.hold(watches(leader, "Pod"))
	d.pods(node, 2)
	d.drive(10, never, lives(node))
	d.switchAll("ipv4")
	d.drive(150, func() bool { return d.w.KnowsIPv6Off(leader, node) }, works(leader), lives(node), is(world.Pass, "time", "15s"))
	d.one(is(world.PoolEdit, "people", "family"))
	removed := d.w.Counts.Did["remove"]
	d.drive(120, func() bool { return d.w.Counts.Did["remove"] > removed }, works(leader), lives(node), passes)
	d.switchAll("all")
	d.drive(20, never, lives(node))
	d.release()
}
