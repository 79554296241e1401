package main

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// staleLeader: blocks leave service and return, and a leader acts on old information. Nodes live
// on pool other. A user pins a block of pool main to a node and drains that pool; the block
// leaves without ever publishing an address.
func (d *director) staleLeader(leader, _, node, _ string) {
	reports := func() bool {
		cn := d.w.CiliumNode(node)
		return cn != nil && len(cn.Status.IPAM.Used)+len(cn.Spec.IPAM.Pools.Requested) > 0 && d.w.Serves(node)
	}
	d.await(120, reports, works(leader), starts(node), action(world.AgentSee, node, ""), action(world.AgentReport, node, ""))
	if !reports() {
		return
	}
	if d.odds(.7) {
		d.fencedBefore(leader, node)
	} else {
		d.claimedAgain(leader, node)
	}
}

// fencedBefore: the release of a block fails after its fence, and the agent has not answered
// the fence's mark. The block is taken back; then it fills up, or leaves again.
func (d *director) fencedBefore(leader, node string) {
	d.drainMain(true, leader)
	block := d.pin(node)
	d.unanswered(node)
	deletes := func() bool {
		return d.inPhase(block, ipalloc.CoolingDown) && d.w.InHand(leader, "node/"+node) == "patch PodIPBlock "+block
	}
	d.await(150, deletes, works(leader))
	if !deletes() {
		return
	}
	d.playOne(action(world.CallFails, leader, "node/"+node))
	for range 2 {
		d.pods(node, 8)
	}
	d.drainMain(false, leader)
	d.await(80, func() bool { return d.inPhase(block, ipalloc.InService) }, works(leader))
	if !d.inPhase(block, ipalloc.InService) || d.odds(.5) {
		d.drive(40, never, works(leader))
		return
	}
	d.hold(action(world.Reconcile, leader, "node/"+node))
	d.drive(30, never, action(world.PodDelete, node, ""), action(world.PodDel, node, ""), action(world.PodGone, node, ""))
	d.drainMain(true, leader)
	d.drive(20, never, watches(leader, ""))
	d.release()
	d.unanswered(node)
	d.await(150, func() bool { return !d.there(block) }, works(leader))
}

// claimedAgain: a block is released and claimed again before the mark of its fence is gone.
func (d *director) claimedAgain(leader, node string) {
	d.drainMain(true, leader)
	first := d.pinSome(node)
	d.unanswered(node)
	d.await(150, func() bool { return !d.there(first) }, works(leader))
	for range 2 {
		d.pods(node, 8)
	}
	d.drainMain(false, leader)
	d.drive(80, never, works(leader))
}

// await is like drive, but lets time pass only as the last choice.
func (d *director) await(n int, wanted func() bool, fit ...fits) {
	for range n {
		if wanted() || !d.playOne(fit...) && !d.playOne(action(world.Pass, "", "next")) && !d.playOne(passes) {
			return
		}
	}
}

// unanswered keeps the agent of a node from answering marks.
func (d *director) unanswered(node string) {
	d.hold(action(world.AgentSee, node, ""))
	d.hold(action(world.AgentReport, node, ""))
}

// drainMain makes users drain the range of pool main, or end that, and delivers the pool to an
// operator.
func (d *director) drainMain(drain bool, operator string) {
	ranges := func() []v1alpha1.PoolCIDR {
		return d.w.API().Get(world.KindPool, "main").(*v1alpha1.PodIPPool).Spec.IPv4.CIDRs
	}
	for len(ranges()) > 1 {
		if !d.playOne(action(world.PoolEdit, "people", "remove")) {
			return
		}
	}
	if drains := ranges()[0].AllocationPolicy == v1alpha1.AllocationDrain; drains != drain {
		d.playOne(action(world.PoolEdit, "people", "drain"))
	}
	d.drive(20, never, watches(operator, "PodIPPool"))
}

// pin pins a block of pool main to a node and returns its name; "": none is free.
func (d *director) pin(node string) string {
	had := d.w.API().Keys(world.KindBlock)
	d.playOne(func(a world.Action) bool { return a.Verb == world.BlockMake && a.Who == node && a.What == "" })
	for _, name := range d.w.API().Keys(world.KindBlock) {
		if !slices.Contains(had, name) {
			return name
		}
	}
	return ""
}

// pinSome pins several blocks and returns the lowest, which is claimed and deleted first.
func (d *director) pinSome(node string) string {
	lowest := ""
	for range 1 + d.r.IntN(4) {
		if name := d.pin(node); name != "" {
			lowest = name
		}
	}
	return lowest
}

// known returns a block as it is stored, if it exists.
func (d *director) known(block string) (crd.Block, bool) {
	obj := d.w.Block(block)
	if obj == nil {
		return crd.Block{}, false
	}
	b, err := crd.BlockFrom(obj)
	return b, err == nil
}

func (d *director) there(block string) bool { return d.w.Block(block) != nil }

func (d *director) inPhase(block string, phase ipalloc.Phase) bool {
	b, ok := d.known(block)
	return ok && b.Phase == phase
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
