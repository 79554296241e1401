package main

import (
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// leaving: a block leaves, and what its handshake goes by is wrong.
func (d *director) leaving() {
	leader, node, blocks := d.drainable()
	if len(blocks) == 0 {
		return
	}
	if d.odds(.5) {
		d.reportsNothing(leader, node, blocks[d.r.IntN(len(blocks))])
	} else {
		d.entryTaken(leader, node)
	}
	d.release()
}

// reportsNothing: an agent starts that reports nothing for long, though it serves, and a
// block is to drain.
func (d *director) reportsNothing(leader, node, block string) {
	d.one(is(world.AgentDies, node, ""))
	d.one(is(world.AgentStart, node, ""))
	d.one(is(world.AgentNothing, node, ""))
	d.hold(is(world.AgentReport, node, ""))
	d.drive(60, func() bool { return d.w.Serves(node) && d.w.Settled(leader, node) }, works(leader), lives(node), passes)
	d.one(is(world.BlockDelete, "people", block))
	d.drive(80, func() bool { return d.w.Marked(node) }, works(leader))
}

// entryTaken: the pods of a node go, and its addresses are marked. A person takes one of
// them out of the pool, pods come, and the block is needed again.
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
