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
	for range 4 {
		d.drive(80, never, goesOn, passes, dies)
		if d.one(family); d.w.API().Get(world.KindPool, "main").(*v1alpha1.PodIPPool).Spec.IPv6 == nil {
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

// goesOn matches the steps that need no users.
func goesOn(a world.Action) bool { return a.Verb.GoesOn() && a.What != "stale" }
