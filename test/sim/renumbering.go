package main

import (
	"math/rand/v2"
	"net/netip"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// withRenumbering are the traits that can be combined with replacing a range.
const withRenumbering = renumbering | windows | pace | pressure | families

// apartOf returns the traits that are drawn separately: renumbering, families, dual and
// turnover, each for every fourth seed.
func apartOf(seed uint64) traits {
	t := poolsOf(seed) | parkingOf(seed) | schedulingOf(seed)
	r := rand.New(rand.NewPCG(seed, 18))
	if r.IntN(4) == 0 {
		t |= renumbering
	}
	if r.IntN(4) == 0 {
		t |= families
	}
	r = rand.New(rand.NewPCG(seed, 20))
	for _, one := range []traits{dual, turnover} {
		if r.IntN(4) == 0 {
			t |= one
		}
	}
	return t
}

// replaceRange makes users replace the first range of the first pool by one with room for all
// nodes. Damage and restores by hand are left to worlds without this trait, because here a
// range must be gone in the end.
func replaceRange(seed uint64, c *world.Config) {
	r := rand.New(rand.NewPCG(seed, 19))
	c.Nodes, c.PodsPerNode = 2, 2+r.IntN(3)
	c.Renumbering = &world.Renumbering{
		From: netip.MustParsePrefix(c.Pools[0].Spec.IPv4.CIDRs[0].CIDR), To: netip.MustParsePrefix("10.0.16.0/25"),
		MaxConcurrent: 1 + r.IntN(2), Alone: []int{0, 4}[r.IntN(2)], KeepAgents: r.IntN(4) == 0,
	}
	c.Faults &^= world.Torn | world.Restore
}

// renumber lets a command that replaces a range, or aborts that, run for a while along with
// everything it waits for, while processes die and a few random actions happen in between.
func (d *director) renumber() {
	d.one(is(world.Renumber, "people", ""))
	if d.odds(.3) { // people edit the pool after the command has read it, and before it writes
		patch := "patch PodIPPool " + d.s.config.Pools[0].Name
		d.drive(30, func() bool { return d.w.CommandInHand() == patch }, is(world.CommandCall, "people", ""))
		d.one(is(world.PoolEdit, "people", ""))
	}
	for range 1 + d.r.IntN(4) {
		d.drive(20+d.r.IntN(80), never, goesOn, passes, dies)
		d.wander(d.r.IntN(5))
	}
}

// dies matches the end of an operator or a command at any time, and the outcomes of calls.
// Agents die only by chance: between a mark and a report that costs pods (docs/reliability.md).
func dies(a world.Action) bool {
	switch a.Verb {
	case world.KillOperator, world.CallKills, world.CallUnheard,
		world.CommandDies, world.CommandKills, world.CommandUnheard, world.CommandFails, world.EvictionRefused:
		return true
	}
	return false
}

// goesOn matches what happens without users.
func goesOn(a world.Action) bool { return a.Verb.GoesOn() && a.What != "stale" }
