package main

import (
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// lateLeader: a leader is paused past its lease, with or without a write in hand, while blocks
// are released under the other leader. Then it resumes, and does a little before it notices
// that it no longer leads.
func (d *director) lateLeader(late, other, node, elsewhere string) {
	d.need(node)
	if d.odds(.7) {
		d.untilInHand(late, node)
	} else {
		d.drive(d.r.IntN(8), never, but(works(late), action(world.Reconcile, late, "node/"+node)))
	}
	d.sleep(late, node)
	if d.odds(.8) {
		d.hold(lives(node)) // its agent's writes would fence, too
	}
	d.takeOver(other)
	d.harm(node)
	before, cooled := d.gone(), d.w.Counts.Did["cool down"]
	early := d.odds(.3)
	d.drive(120, func() bool { return d.gone() > before || early && d.w.Counts.Did["cool down"] > cooled }, works(other), passes, lives(node), lives(elsewhere))
	if early { // its write comes while the block rests, and the other one is not shown that
		d.hold(watches(other, "CiliumNode"))
		d.playOne(action(world.Thaw, late, ""))
		d.playOne(action(world.Call, late, "node/"+node))
		d.drive(120, func() bool { return d.gone() > before }, works(other), passes)
	}
	if d.odds(.5) {
		d.pods(elsewhere, 3)
		d.drive(30, never, works(other), lives(elsewhere))
	}
	d.wakes(late, node)
}

// staleWatch: blocks of another size are created and published, and an operator takes over before
// its watches deliver them.
func (d *director) staleWatch(seer, unseeing, node, elsewhere string) {
	d.drive(60, never, works(unseeing), watches(seer, ""))
	d.hold(watches(unseeing, "PodIPBlock"))
	if d.odds(.8) {
		d.hold(watches(unseeing, "CiliumNode"))
	}
	if d.odds(.8) {
		d.hold(lives(node))
	}
	d.playOne(action(world.BlockMake, elsewhere, "wide"))
	d.drive(40, func() bool { return d.odds(.02) || d.unlisted(elsewhere) == "" }, but(works(seer), action(world.Reconcile, seer, "node/"+node)))
	d.sleep(seer, elsewhere)
	d.takeOver(unseeing)
	d.pods(node, 8)
	d.drive(60, never, works(unseeing), action(world.Pass, "", "1"))
	if d.odds(.5) {
		d.release()
		d.wakes(seer, elsewhere)
	}
}

// lostAnswer: two nodes claim at the same time. The response to one claim is lost, the other
// claim may fail, and watches deliver neither outcome.
func (d *director) lostAnswer(leader, _, node, elsewhere string) {
	d.pods(node, 4)
	d.pods(elsewhere, 4)
	claims := func(n string) bool { return strings.HasPrefix(d.w.InHand(leader, "node/"+n), "create PodIPBlock") }
	d.drive(60, func() bool { return claims(node) && claims(elsewhere) },
		but(works(leader), func(a world.Action) bool {
			return a.Verb == world.Call && strings.HasPrefix(d.w.InHand(leader, a.What), "create PodIPBlock")
		}))
	if !claims(node) {
		node, elsewhere = elsewhere, node
	}
	d.hold(watches(leader, "PodIPBlock"))
	d.playOne(action(world.CallUnheard, leader, "node/"+node))
	d.playOne(action(world.CallThrottle, leader, "node/"+elsewhere), action(world.CallFails, leader, "node/"+elsewhere), action(world.Call, leader, "node/"+elsewhere))
	d.drive(25, never, works(leader), action(world.Pass, "", "next"))
}

// awake returns the leader and the other operator, after starting both if possible.
func (d *director) awake() (leader, other string, ok bool) {
	d.drive(6, func() bool { return d.w.Leader() != "" && d.w.Runs(d.w.Leader()) }, action(world.Thaw, "", ""), action(world.Start, "", ""), action(world.Lead, "", ""))
	leader, other = d.w.Leader(), "op1"
	if leader == "" || !d.w.Runs(leader) {
		return "", "", false
	}
	if leader == other {
		other = "op2"
	}
	d.playOne(action(world.Start, other, ""), action(world.Thaw, other, ""))
	return leader, other, true
}

// nodes returns two nodes in random order.
func (d *director) nodes() (string, string) {
	if d.odds(.5) {
		return "n2", "n1"
	}
	return "n1", "n2"
}

// need causes something to be written about a node.
func (d *director) need(node string) {
	if d.odds(.6) {
		d.playOne(action(world.BlockMake, node, ""))
		return
	}
	d.pods(node, 4)
}

func (d *director) pods(node string, n int) {
	for range 1 + d.r.IntN(n) {
		d.playOne(action(world.PodNew, node, ""))
	}
}

// untilInHand lets an operator work until it is about to publish, or occasionally to write
// something else, for a node.
func (d *director) untilInHand(operator, node string) {
	kind, _ := d.s.mode.Resource()
	d.drive(40, func() bool {
		call := d.w.InHand(operator, "node/"+node)
		return call == "patch "+kind.Kind+" "+node || call != "" && d.odds(.02)
	}, works(operator))
}

// sleep pauses an operator, with a write about a node in hand if there is one.
func (d *director) sleep(operator, node string) {
	if !d.playOne(action(world.CallFreezes, operator, "node/"+node)) {
		d.playOne(action(world.FreezeOp, operator, ""))
	}
}

// takeOver lets the lease expire and another operator take it.
func (d *director) takeOver(operator string) {
	d.drive(4, func() bool { return d.w.Leader() == operator },
		action(world.Lead, operator, ""), action(world.Start, operator, ""), action(world.Thaw, operator, ""), action(world.Pass, "", "15s"))
	d.drive(10, func() bool { return d.w.Leader() == operator }, works(operator), action(world.Pass, "", "15s"))
}

// harm takes a block away from a node, in one of several ways.
func (d *director) harm(node string) {
	switch d.r.IntN(8) {
	case 0:
		d.playOne(action(world.NodeDelete, node, ""), action(world.NodeOff, node, ""))
	case 1:
		d.playOne(action(world.CNDelete, node, ""))
	case 2:
		d.playOne(action(world.PoolEdit, "people", "drain"), action(world.PoolEdit, "people", "remove"))
	default:
		name := d.unlisted(node)
		if name == "" {
			name = d.block(node)
		}
		if name != "" {
			d.playOne(action(world.BlockDelete, "people", name))
		}
	}
}

// wakes lets a late leader do a little while some of its watches still lag.
func (d *director) wakes(late, node string) {
	if d.odds(.5) {
		d.hold(watches(late, "PodIPBlock"))
	}
	d.playOne(action(world.Thaw, late, ""))
	d.drive(1+d.r.IntN(4), never, action(world.Call, late, "node/"+node))
	d.drive(d.r.IntN(20), never, works(late))
}

// gone returns the number of released blocks so far.
func (d *director) gone() int { return d.w.Counts.Did["give up"] }

// block returns a block of a node; "": there is none.
func (d *director) block(node string) string { return d.pick(node, false) }

// unlisted returns a block of a node that is not assigned to its agent; "": there is none.
func (d *director) unlisted(node string) string { return d.pick(node, true) }

func (d *director) pick(node string, unlisted bool) string {
	var listed []string
	for _, p := range d.w.Assigned(node) {
		listed = append(listed, p.String())
	}
	var names []string
	for _, b := range d.w.Blocks() {
		if b.Spec.NodeName == node && (!unlisted || !slices.Contains(listed, b.Spec.CIDR)) {
			names = append(names, b.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return names[d.r.IntN(len(names))]
}

// competingClaim: a leader is about to use something that belongs to another, or soon will.
func (d *director) competingClaim(leader, other, node, elsewhere string) {
	plots := []func(leader, other, node, elsewhere string){d.sameClaim, d.anotherObject, d.namedByHand}
	plots[d.r.IntN(len(plots))](leader, other, node, elsewhere)
}

// sameClaim: a leader is paused before it claims a block, and the other leader claims it for
// another node.
func (d *director) sameClaim(late, other, node, elsewhere string) {
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
	d.hold(action(world.Reconcile, other, "node/"+node))
	d.pods(elsewhere, 8)
	d.drive(100, func() bool { return d.w.API().Get(world.KindBlock, name) != nil }, works(other), lives(elsewhere))
	d.playOne(action(world.Thaw, late, ""))
	d.drive(25, func() bool { return d.w.InHand(late, "node/"+node) == "" }, action(world.Call, late, "node/"+node), action(world.Shown, late, "node/"+node), watches(late, "PodIPBlock"))
}

// anotherObject: a backup is restored while a leader is about to read a block live in order to
// publish it, so the block is no longer the object that the leader knows.
func (d *director) anotherObject(leader, _, node, _ string) {
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
	d.playOne(action(world.BackupTake, "", ""))
	d.hold(watches(leader, "PodIPBlock"))
	d.playOne(action(world.BackupAgain, "", ""))
	d.drive(6, func() bool { return d.w.InHand(leader, "node/"+node) == "" }, action(world.Call, leader, "node/"+node))
}

// namedByHand: a user publishes an address, in a range that a pool gets later, and another node
// needs a block.
func (d *director) namedByHand(leader, _, node, elsewhere string) {
	if !d.foreign(node, leader) {
		return
	}
	for range 2 {
		d.pods(elsewhere, 8)
	}
	d.await(100, d.foreignClaimed, works(leader), lives(elsewhere))
	d.playOne(action(world.PoolEdit, "people", "remove"))
}

// foreign makes a user publish an address and delivers it to the operators. After that, the only
// range with free blocks contains that address. It reports whether the address is there.
func (d *director) foreign(node, leader string) bool {
	d.drive(60, func() bool { return d.w.API().Get(world.KindCiliumNode, node) != nil }, works(leader), lives(node))
	if !d.playOne(action(world.CNEdit, node, "foreign")) {
		return false
	}
	d.drive(80, never, watches("op1", ""), watches("op2", ""), action(world.Call, leader, ""))
	d.playOne(action(world.PoolEdit, "people", "cordon"))
	d.playOne(action(world.PoolEdit, "people", "add"))
	return true
}

// foreignClaimed reports whether a block contains addresses that users write into pools.
func (d *director) foreignClaimed() bool {
	return slices.ContainsFunc(d.w.Blocks(), func(b *v1alpha1.PodIPBlock) bool { return strings.HasPrefix(b.Spec.CIDR, "172.16.0.0/") })
}
