package main

import (
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// prelude brings a world to where a search begins, in a fixed order, and notes
// the actions it took.
type prelude struct {
	w       *world.World
	actions []world.Action
}

func (p *prelude) do(verb world.Verb, who, what string) {
	a := world.Action{Verb: verb, Who: who, What: what}
	if !p.w.Can(a) {
		panic("not possible in a prelude: " + a.String())
	}
	p.actions = append(p.actions, a)
	p.w.Do(a)
}

// goesOn says that an action is the work of operators, agents and kubelets.
func goesOn(v world.Verb) bool {
	switch v {
	case world.Reconcile, world.Call, world.Shown, world.AgentStart, world.AgentOpen, world.AgentRestore, world.AgentServe,
		world.AgentReport, world.AgentPod, world.PodAdd, world.PodStatus, world.PodDel, world.PodGone:
		return true
	}
	return false
}

// until lets work go on, and time pass where there is none, until there is none
// and the world is as wanted.
func (p *prelude) until(wanted func() bool) {
	for range 5000 {
		all := p.w.Enabled()
		if i := slices.IndexFunc(all, func(a world.Action) bool { return goesOn(a.Verb) }); i >= 0 {
			p.do(all[i].Verb, all[i].Who, all[i].What)
			continue
		}
		if wanted() {
			return
		}
		p.do(world.Pass, "time", "next")
	}
	panic("a prelude does not end")
}

func (p *prelude) operatorsUp() {
	p.do(world.Start, "op1", "")
	p.do(world.Start, "op2", "")
	p.watch()
	p.do(world.Lead, "op1", "")
}

// watch brings the watches up to date, if they lag.
func (p *prelude) watch() {
	for {
		all := p.w.Enabled()
		i := slices.IndexFunc(all, func(a world.Action) bool { return a.Verb == world.Watch })
		if i < 0 {
			return
		}
		p.do(all[i].Verb, all[i].Who, all[i].What)
	}
}

// another lets the other operator lead too, as the lease is over.
func (p *prelude) another() {
	p.do(world.JumpFar, "time", "20s")
	p.do(world.Lead, "op2", "")
}

// bothLead is with an agent on n1 that waits for addresses, and none on n2 yet.
func (p *prelude) bothLead() {
	p.operatorsUp()
	p.do(world.AgentStart, "n1", "")
	p.watch()
	p.another()
}

// nodesUp is with a block for each node, and their agents known to run steadily.
func (p *prelude) nodesUp() {
	p.operatorsUp()
	p.until(func() bool { return p.used("n1") == 1 && p.used("n2") == 1 })
}

func (p *prelude) bothGrow() {
	p.nodesUp()
	p.another()
	p.do(world.PodNew, "n1", "p1")
	p.do(world.PodNew, "n2", "p1")
}

// twoBlocks is with a pod on n1, and a second block for it.
func (p *prelude) twoBlocks() {
	p.nodesUp()
	p.do(world.PodNew, "n1", "p1")
	p.until(func() bool { return p.used("n1") == 2 && p.blocks("n1", "") == 2 })
}

// blockLeaves is as a block of n1 begins to drain.
func (p *prelude) blockLeaves() {
	p.twoBlocks()
	p.do(world.PodDelete, "n1", "p1")
	p.until(func() bool { return p.blocks("n1", v1alpha1.BlockDraining) == 1 })
	p.another()
}

func (p *prelude) blockDeleted() {
	p.twoBlocks()
	p.another()
	p.do(world.BlockDelete, "people", "10.0.0.8-30")
}

// blockRests is with a block of n1 that cools down, and a pod on n2 that waits.
// The first leader has claimed that block for n1, and sleeps before it publishes
// it. The other one has seen to the rest.
func (p *prelude) blockRests() {
	p.nodesUp()
	p.do(world.PodNew, "n1", "p1")
	p.do(world.Reconcile, "op1", "node/n1")
	p.do(world.Call, "op1", "node/n1")
	p.do(world.Shown, "op1", "node/n1")
	p.do(world.FreezeOp, "op1", "")
	p.another()
	p.do(world.PodDelete, "n1", "p1")
	p.do(world.PodGone, "n1", "p1")
	p.do(world.PodNew, "n2", "p1")
	p.until(func() bool { return p.blocks("n1", v1alpha1.BlockCoolingDown) == 1 })
}

// used is how many addresses the agent of a node reports.
func (p *prelude) used(node string) int {
	cn, ok := p.w.API().Get(world.KindCiliumNode, node).(*ciliumv2.CiliumNode)
	if !ok {
		return 0
	}
	return len(cn.Status.IPAM.Used)
}

// blocks is how many blocks a node has, with a condition if one is named.
func (p *prelude) blocks(node, condition string) int {
	n := 0
	for _, name := range p.w.API().Keys(world.KindBlock) {
		b := p.w.API().Get(world.KindBlock, name).(*v1alpha1.PodIPBlock)
		if b.Spec.NodeName == node && (condition == "" || meta.IsStatusConditionTrue(b.Status.Conditions, condition)) {
			n++
		}
	}
	return n
}
