package main

import (
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// leaving: a block drains while the information that its handshake depends on is wrong.
func (d *director) leaving() {
	leader, node, blocks := d.drainable()
	if len(blocks) == 0 {
		return
	}
	block := blocks[d.r.IntN(len(blocks))]
	switch n := d.r.IntN(4); {
	case n == 0 || d.w.Marked(node): // an agent that restarts now could lose pods
		d.entryTaken(leader, node)
	case n == 3:
		d.takesLeaving(leader, node)
	case n == 1:
		d.answersEarly(leader, node, block)
	default:
		d.reportsNothing(leader, node, block)
	}
	d.release()
}

// reportsNothing: an agent starts and serves, but reports nothing for long, and a block should
// drain.
func (d *director) reportsNothing(leader, node, block string) {
	d.one(is(world.AgentDies, node, ""))
	d.one(is(world.AgentStart, node, ""))
	d.one(is(world.AgentNothing, node, ""))
	d.hold(is(world.AgentReport, node, ""))
	d.drive(60, func() bool { return d.w.Serves(node) && d.w.Settled(leader, node) }, works(leader), lives(node), passes)
	d.one(is(world.BlockDelete, "people", block))
	d.drive(80, func() bool { return d.w.Marked(node) }, works(leader))
}

// entryTaken: the pods of a node go, and its addresses are marked. A user removes one of them
// from the pool, pods arrive, and the block is needed again.
func (d *director) entryTaken(leader, node string) {
	d.drive(8, never, is(world.PodDelete, node, ""))
	d.drive(150, func() bool { return d.w.Marked(node) }, works(leader), lives(node), passes)
	for range 2 {
		d.one(is(world.CNEdit, node, "entry"))
	}
	d.hold(is(world.AgentSee, node, ""))
	d.hold(is(world.AgentReport, node, ""))
	d.pods(node, 8)
	d.drive(100, never, works(leader))
}

// answersEarly: an address is marked just as its agent starts. The agent answers the mark
// before it has restored its pods, and reports nothing for long.
func (d *director) answersEarly(leader, node, block string) {
	d.drive(60, never, is(world.PodStatus, node, ""), watches(leader, "")) // or pods would be lost
	d.hold(lives(node))
	d.one(is(world.BlockDelete, "people", block))
	d.drive(80, func() bool { return d.w.InHand(leader, "node/"+node) == "patch CiliumNode "+node+" status" }, works(leader))
	d.release()
	d.one(is(world.AgentDies, node, ""))
	d.one(is(world.AgentStart, node, ""))
	d.one(is(world.AgentOpen, node, ""))
	d.drive(40, func() bool { return d.w.Marked(node) }, works(leader))
	d.drive(10, never, is(world.AgentSee, node, ""))
	d.drive(4, func() bool { return !d.w.Marked(node) }, is(world.AgentReport, node, ""), is(world.Pass, "", "15s"))
	d.hold(is(world.AgentReport, node, ""))
	d.drive(8, func() bool { return d.w.Serves(node) }, starts(node))
	d.drive(120, never, works(leader), is(world.AgentPod, node, ""), passes)
}

// takesLeaving: blocks are reclaimed as the pods of a node go, and users delete the block in
// which the agent has its own addresses. The agent restarts, and may take new addresses from a
// block that is being reclaimed.
func (d *director) takesLeaving(leader, node string) {
	d.drive(8, never, is(world.PodDelete, node, ""))
	d.drive(150, func() bool { return d.w.Marked(node) }, works(leader), lives(node), passes)
	for _, block := range d.w.OwnBlocks(node) {
		d.one(is(world.BlockDelete, "people", block))
	}
	d.hold(is(world.AgentSee, node, ""))
	retired := d.w.Counts.Did["retire"]
	d.drive(120, func() bool { return d.w.Counts.Did["retire"] > retired }, works(leader), passes)
	d.one(is(world.AgentDies, node, ""))
	d.release()
	d.drive(200, never, works(leader), lives(node), passes)
}
