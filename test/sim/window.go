package main

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// window: a block drains, a pod arrives on its node, and the agent is killed and starts again,
// with the mark at any point in between. Mostly the operator's watches deliver what its guards
// depend on before the next step; then no pod may be lost.
func (d *director) window() {
	leader, node, blocks := d.drainable()
	if len(blocks) == 0 {
		return
	}
	d.one(is(world.BlockDelete, "people", blocks[d.r.IntN(len(blocks))]))
	if d.odds(.1) { // it has decided to mark, and knows no better
		d.drive(60, func() bool { return d.w.InHand(leader, "node/"+node) == "patch CiliumNode "+node+" status" }, works(leader))
	}
	d.isolate(node)
	steps := []func(){
		func() { d.comes(leader, node) },
		func() { d.dies(leader, node) },
		func() { d.drive(8, func() bool { return d.w.Serves(node) }, starts(node)) },
	}
	mark := func() { d.drive(60, func() bool { return d.w.Marked(node) }, works(leader)) }
	for _, step := range slices.Insert(steps, d.r.IntN(len(steps)+1), mark) {
		step()
	}
	d.release()
	d.drive(12, never, lives(node))
}

// drainable brings pods to a node until blocks of it can drain. It returns the leader, the node
// and these blocks: none if there is no leader or the agent does not serve.
func (d *director) drainable() (leader, node string, blocks []string) {
	leader, _, ok := d.awake()
	if !ok {
		return "", "", nil
	}
	node, _ = d.nodes()
	d.pods(node, 4)
	d.drive(150, func() bool { return d.w.Settled(leader, node) && len(d.w.CanDrain(node)) > 0 }, works(leader), lives(node), passes)
	if !d.w.Serves(node) {
		return leader, node, nil
	}
	return leader, node, d.w.CanDrain(node)
}

// isolate mostly keeps the agent from seeing marks and reporting its addresses.
func (d *director) isolate(node string) {
	for _, verb := range []world.Verb{world.AgentSee, world.AgentReport, world.PodStatus} {
		if d.odds(.9) {
			d.hold(is(verb, node, ""))
		}
	}
}

// comes brings pods to a node. Mostly their events are delivered to the operator before they
// get addresses.
func (d *director) comes(operator, node string) {
	d.pods(node, 3)
	if d.odds(.95) {
		d.drive(20, never, watches(operator, "Pod"))
	}
	d.drive(3, never, is(world.PodAdd, node, ""))
}

// dies kills the agent of a node. Mostly that is delivered to the operator, which gets time to
// act on it.
func (d *director) dies(operator, node string) {
	d.one(is(world.AgentDies, node, ""))
	if d.odds(.95) {
		d.one(is(world.AgentPod, node, ""))
		d.drive(20, never, watches(operator, "Agent"))
		d.drive(40, func() bool { return !d.w.Marked(node) }, works(operator))
	}
}

// starts matches the steps of an agent's start.
func starts(node string) fits {
	return func(a world.Action) bool {
		switch a.Verb {
		case world.AgentStart, world.AgentOpen, world.AgentRestore, world.AgentServe:
			return a.Who == node
		}
		return false
	}
}
