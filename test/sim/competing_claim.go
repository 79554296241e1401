package main

import (
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// competingClaim: a leader is about to use something that belongs to another, or soon will.
func (d *director) competingClaim() {
	plots := []func(){d.sameClaim, d.anotherObject, d.namedByHand, d.putBack}
	plots[d.r.IntN(len(plots))]()
}

// sameClaim: a leader is paused before it claims a block, and the other leader claims it for
// another node.
func (d *director) sameClaim() {
	late, other, ok := d.awake()
	if !ok {
		return
	}
	node, elsewhere := d.nodes()
	d.pods(node, 8)
	claim := func() string {
		name, _ := strings.CutPrefix(d.w.InHand(late, "node/"+node), "create PodIPBlock ")
		return name
	}
	claims := func() bool { return strings.HasPrefix(d.w.InHand(late, "node/"+node), "create PodIPBlock ") }
	d.drive(80, claims, works(late), lives(node))
	if !claims() {
		return
	}
	name := claim()
	d.sleep(late, node)
	d.hold(lives(node)) // its agent's writes make the claim's patch lose
	d.takeOver(other)
	d.hold(is(world.Reconcile, other, "node/"+node))
	d.pods(elsewhere, 8)
	d.drive(100, func() bool { return d.w.API().Get(world.KindBlock, name) != nil }, works(other), lives(elsewhere))
	d.one(is(world.Thaw, late, ""))
	d.drive(25, func() bool { return d.w.InHand(late, "node/"+node) == "" }, is(world.Call, late, "node/"+node), is(world.Shown, late, "node/"+node), watches(late, "PodIPBlock"))
	d.release()
}

// anotherObject: a backup is restored while a leader is about to read a block live in order to
// publish it, so the block is no longer the object that the leader knows.
func (d *director) anotherObject() {
	leader, _, ok := d.awake()
	if !ok {
		return
	}
	node, _ := d.nodes()
	d.drive(60, never, works(leader), lives(node))
	block := d.pin(node)
	reads := func() bool { // with its finalizer, without which no object is published
		b, ok := d.known(block)
		return ok && b.Finalized && d.w.InHand(leader, "node/"+node) == "get PodIPBlock "+block
	}
	d.await(80, reads, works(leader))
	if !reads() {
		return
	}
	d.one(is(world.BackupTake, "", ""))
	d.hold(watches(leader, "PodIPBlock"))
	d.one(is(world.BackupAgain, "", ""))
	d.drive(6, func() bool { return d.w.InHand(leader, "node/"+node) == "" }, is(world.Call, leader, "node/"+node))
	d.release()
}

// namedByHand: a user publishes an address, in a range that a pool gets later, and another node
// needs a block.
func (d *director) namedByHand() {
	leader, _, ok := d.awake()
	if !ok {
		return
	}
	node, elsewhere := d.nodes()
	if !d.foreign(node, leader) {
		return
	}
	for range 2 {
		d.pods(elsewhere, 8)
	}
	d.await(100, d.foreignClaimed, works(leader), lives(elsewhere))
	d.one(is(world.PoolEdit, "people", "remove"))
}

// foreign makes a user publish an address and delivers it to the operators. After that, the only
// range with free blocks contains that address. It reports whether the address is there.
func (d *director) foreign(node, leader string) bool {
	d.drive(60, func() bool { return d.w.API().Get(world.KindCiliumNode, node) != nil }, works(leader), lives(node))
	if !d.one(is(world.CNEdit, node, "foreign")) {
		return false
	}
	d.drive(80, never, watches("op1", ""), watches("op2", ""), is(world.Call, leader, ""))
	d.one(is(world.PoolEdit, "people", "cordon"))
	d.one(is(world.PoolEdit, "people", "add"))
	return true
}

// putBack: a user publishes an address, in a range that a pool gets later, and deletes the
// CiliumNode. One leader still remembers it. The other one never knew it, and has claimed that
// address for another node, which may not have been delivered to the first.
func (d *director) putBack() {
	knows, other, ok := d.awake()
	if !ok {
		return
	}
	node, elsewhere := d.nodes()
	d.one(is(world.KillOperator, other, ""))
	if !d.foreign(node, knows) {
		return
	}
	d.one(is(world.FreezeOp, knows, ""))
	d.hold(lives(node))
	d.one(is(world.CNDelete, node, ""))
	d.takeOver(other)
	d.hold(is(world.Reconcile, other, "node/"+node))
	d.pods(elsewhere, 8)
	d.drive(150, func() bool { return d.foreignClaimed() }, works(other), lives(elsewhere))
	if !d.foreignClaimed() {
		d.release()
		return
	}
	d.one(is(world.Thaw, knows, ""))
	d.drive(60, func() bool { return d.w.API().Get(world.KindCiliumNode, node) != nil },
		watches(knows, ""), is(world.Reconcile, knows, "node/"+node), is(world.Call, knows, "node/"+node))
	d.release()
}

// foreignClaimed reports whether a block contains addresses that users write into pools.
func (d *director) foreignClaimed() bool {
	for _, name := range d.w.API().Keys(world.KindBlock) {
		if strings.HasPrefix(d.w.API().Get(world.KindBlock, name).(*v1alpha1.PodIPBlock).Spec.CIDR, "172.16.0.0/") {
			return true
		}
	}
	return false
}
