package main

import (
	"maps"
	"math/rand/v2"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// scenario is the world of a seed, and the weight of each kind of action in it.
type scenario struct {
	origin
	config  world.Config
	weights map[world.Verb]float64
	// frozen are the weights while a process of the operator is stopped.
	frozen map[world.Verb]float64
}

// draw makes a scenario.
func draw(o origin) scenario {
	seed := o.seed
	r := rand.New(rand.NewPCG(seed, 1))
	c := world.Config{
		Nodes: 2 + r.IntN(2), PodsPerNode: 4 + r.IntN(5), Operators: 2, UpdateRate: 15 * time.Second,
		Settings: world.Settings(), Seed: seed + 1,
		Spare: []v1alpha1.PoolCIDR{{CIDR: "10.0.1.0/28"}, {CIDR: "10.0.2.0/27"}},
	}
	size := int32(29 + r.IntN(2))
	c.Pools = []*v1alpha1.PodIPPool{world.Pool("main", 1, size, "10.0.0.0/27")}
	c.Other = world.Pool("other", 1+int32(r.IntN(2)), 28+int32(r.IntN(3)), "10.0.3.0/27")
	if r.IntN(4) == 0 {
		haveBoth(&c, "fd00::/122")
	}
	c.Upgraded = c.Settings
	c.Upgraded.Defaults.Policy.MinFree = 3
	for _, one := range world.Each(world.AllFaults()) {
		if r.IntN(2) == 0 {
			c.Faults |= one
		}
	}
	if r.IntN(16) == 0 {
		c.Faults = 0
	}
	c.Skew = 5 * time.Second
	w := weights(r)
	frozen := whileFrozen(r, w)
	o.profile.adapt(seed, &c)
	adaptTo(o.mode, seed, &c)
	o.traits.adapt(seed, &c)
	c.Model = o.mode != ciliumnode.Kubernetes && o.mode != ciliumnode.DelegatedPlugin && o.traits&^modelledTraits == 0
	c.ModelAlone = o.modelAlone
	for _, some := range []map[world.Verb]float64{w, frozen} {
		o.traits.weigh(some)
		weighIn(o.mode, some)
	}
	return scenario{origin: o, config: c, weights: w, frozen: frozen}
}

// weights returns the weight of each verb among the possible ones. Each seed has its own, so that
// some worlds are calm and others chaotic.
func weights(r *rand.Rand) map[world.Verb]float64 {
	w := map[world.Verb]float64{
		world.Start: 10, world.Lead: 10, world.Thaw: 2,
		world.Watch: 40, world.Tell: 40, world.Reconcile: 30, world.Early: 5, world.Call: 60, world.Shown: 60, world.Timeout: 5,
		world.CallFails: .5, world.CallThrottle: .5, world.CallUnheard: 1, world.CallKills: .5, world.CallFreezes: .3,
		world.KillOperator: .3, world.List: .3, world.FreezeOp: .3, world.UpgradeOp: .1,
		world.AgentStart: 10, world.AgentOpen: 10, world.AgentRestore: 5, world.AgentServe: 10,
		world.AgentSee: 20, world.AgentAgain: 2, world.AgentReport: 10, world.AgentPod: 10, world.AgentSync: 2,
		world.AgentDies: .5, world.AgentNothing: .3, world.AgentMutes: .2,
		world.NodeAgentStart: 10, world.NodeAgentSee: 20, world.NodeAgentRun: 10, world.NodeAgentCall: 20,
		world.NodeAgentFails: .3, world.NodeAgentUnheard: .5, world.NodeAgentKills: .5, world.NodeAgentDies: .3,
		world.Reboot: .4, world.DiskLost: .2, world.StoreLost: .3, world.SandboxDel: 2, world.AddKilled: 1.5,
		world.PodNew: 3, world.PodAdd: 15, world.PodStatus: 10, world.PodFinish: .5, world.PodDelete: 2,
		world.PodDel: 10, world.PodGone: 8, world.PodForce: .2,
		world.Pass: 8, world.JumpFar: .2, world.Collect: 3,
		world.NodeDelete: .1, world.NodeOff: .1, world.NodeMake: 1, world.CNDelete: .2, world.CNEdit: .3,
		world.PoolEdit: .5, world.BlockDelete: .4, world.BlockMake: .2, world.PinMake: .2, world.PinDelete: .2, world.BlockTear: .2, world.BlockStrip: .2,
		world.BlockStatus: .2, world.Touch: .3, world.Cordon: .3,
		world.Migrate: .7, world.CommandCall: 40, world.CommandFails: .2, world.CommandUnheard: .5, world.CommandKills: .3,
		world.CommandDies: .2, world.Configure: .5, world.AgentRollout: 1, world.BackupTake: .3, world.BackupAgain: .3,
		world.CiliumPoolEdit: .6, world.NamespaceEdit: .2,
		world.NodeLabel: 4, world.NodeAddress: 2, world.ServiceEdit: 1.5,
		world.AgentFamilies: .3,
		world.PodWait:       4, world.PodDrop: .2, world.Schedule: 20, world.SchedulerSee: 6,
	}
	for _, group := range [][]world.Verb{
		{world.Watch, world.Tell}, {world.AgentSee, world.AgentAgain, world.NodeAgentSee}, {world.AgentReport, world.NodeAgentRun}, {world.PodNew}, {world.PodDelete}, {world.Pass},
		{world.Call}, {world.Reconcile},
	} {
		factor := []float64{.3, 1, 1, 2}[r.IntN(4)]
		for _, verb := range group {
			w[verb] *= factor
		}
	}
	return w
}

// whileFrozen returns the weights while a process is paused. In a quarter of the seeds leaders
// are often paused for long with a write in hand, while blocks are released and little else
// happens: an old write that arrives last must conflict.
func whileFrozen(r *rand.Rand, w map[world.Verb]float64) map[world.Verb]float64 {
	if r.IntN(4) > 0 {
		return w
	}
	w[world.CallFreezes] *= 10
	w[world.BlockMake] *= 10
	frozen := maps.Clone(w)
	for verb, factor := range map[world.Verb]float64{
		world.Thaw: .1, world.CallFreezes: 0, world.FreezeOp: 0, world.Pass: 2, world.BlockDelete: 20,
		world.PodNew: .1, world.PodAdd: .1, world.PodDelete: .1, world.PodDel: .1, world.AgentReport: .1, world.AgentDies: .1,
	} {
		frozen[verb] *= factor
	}
	return frozen
}
