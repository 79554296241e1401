package main

import (
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// switchFamilies gives a world both families. Users remove IPv6 from the first pool and from
// agents, and bring it back.
func switchFamilies(c *world.Config) {
	c.Families, c.SwitchesFamilies = []agent.Family{agent.IPv4, agent.IPv6}, true
	c.Pools[0].Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 125, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/122"}}}
	c.Faults |= world.PoolEdits
}

// switchAll restarts all agents with IPv4 only, or with both families.
func (d *director) switchAll(what string) {
	for _, node := range []string{"n1", "n2", "n3"} {
		d.one(is(world.AgentFamilies, node, what))
	}
}

// switchOff removes IPv6 from all agents and from the pool, leaves time for blocks to be
// released, and brings it back.
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

// restartWith restarts an agent with IPv4 only, or with both families.
func (d *director) restartWith(node, families string) {
	d.one(is(world.AgentFamilies, node, families))
	d.drive(10, func() bool { return d.w.Serves(node) }, lives(node))
}

// restartUnseen restarts an agent with both families while the leader believes that it runs
// IPv4 only. Neither its kubelet nor its report shows the change until release is called.
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

// switchBackUnseen drains IPv6 just after an agent has started with it. The agent assigns
// addresses to pods before it sees their marks, and restarts with IPv4 only before its kubelet
// or its report shows anything. Then it is asked to report, and restarts with IPv6.
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

// switchOnUnseen drains IPv6 just after an agent has started with it, before its kubelet or its
// report shows so. Or the agent has already assigned IPv6 addresses to pods, and runs IPv4 only
// again.
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

// switchOffUnseen switches IPv6 off under a pod that the leader's watch has not delivered,
// drains it, and switches it on again.
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

// dies matches the end of an operator or a command at any time, and the outcomes of calls.
// Agents die only by chance: between a mark and a report that costs pods (docs/reliability.md).
func dies(a world.Action) bool {
	switch a.Verb {
	case world.KillOperator, world.CallKills, world.CallUnheard,
		world.CommandDies, world.CommandKills, world.CommandUnheard, world.CommandFails:
		return true
	}
	return false
}

// goesOn matches what happens without users.
func goesOn(a world.Action) bool { return a.Verb.GoesOn() && a.What != "stale" }
