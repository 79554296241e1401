package main

import (
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// scenario is what a seed makes of a world, and how often what happens in it.
type scenario struct {
	config  world.Config
	weights map[world.Verb]float64
}

// draw makes a scenario of a seed.
func draw(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 1))
	c := world.Config{
		Nodes: 2 + r.IntN(2), PodsPerNode: 4 + r.IntN(5), Operators: 2, UpdateRate: 15 * time.Second,
		Settings: settings(), Seed: seed + 1,
		Spare: []v1alpha1.PoolCIDR{{CIDR: "10.0.1.0/28"}, {CIDR: "10.0.2.0/27"}},
	}
	size := int32(29 + r.IntN(2))
	c.Pools = []*v1alpha1.PodIPPool{pool("main", 1, size, "10.0.0.0/27")}
	c.Other = pool("other", 1+int32(r.IntN(2)), 28+int32(r.IntN(3)), "10.0.3.0/27")
	if r.IntN(4) == 0 {
		c.Families = []agent.Family{agent.IPv4, agent.IPv6}
		c.Pools[0].Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 125, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/122"}}}
	}
	c.Upgraded = c.Settings
	c.Upgraded.Defaults.Policy.MinFree = 3
	for _, one := range world.AllFaults().Each() {
		if r.IntN(2) == 0 {
			c.Faults |= one
		}
	}
	if r.IntN(16) == 0 {
		c.Faults = 0
	}
	c.Skew = 5 * time.Second
	return scenario{config: c, weights: weights(r)}
}

func settings() controller.Settings {
	p := expand.DefaultPolicy()
	p.MinFree, p.IdleFor = 1, 2*time.Minute
	return controller.Settings{
		Defaults:       crd.Defaults{Policy: p, Cooldown: time.Minute, NodeGoneCooldown: 5 * time.Minute},
		AgentNamespace: "kube-system", AgentSettle: time.Minute, NodeWorkers: 2,
	}
}

func pool(name string, priority, size int32, cidr string) *v1alpha1.PodIPPool {
	return &v1alpha1.PodIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PodIPPoolSpec{
			Priority: priority, IPv4: &v1alpha1.IPv4Ranges{BlockSize: size, CIDRs: []v1alpha1.PoolCIDR{{CIDR: cidr}}},
		},
	}
}

// weights say how often a verb is chosen among those possible. Each seed has its
// own, so that some know only calm and others only strife.
func weights(r *rand.Rand) map[world.Verb]float64 {
	w := map[world.Verb]float64{
		world.Start: 10, world.Lead: 10, world.Thaw: 2,
		world.Watch: 40, world.Tell: 40, world.Reconcile: 30, world.Call: 60, world.Shown: 60, world.Timeout: 5,
		world.CallFails: .5, world.CallThrottle: .5, world.CallUnheard: 1, world.CallKills: .5,
		world.KillOperator: .1, world.List: .3, world.FreezeOp: .3, world.UpgradeOp: .1,
		world.AgentStart: 10, world.AgentOpen: 10, world.AgentRestore: 5, world.AgentServe: 10,
		world.AgentSee: 20, world.AgentReport: 10, world.AgentPod: 10, world.AgentSync: 2,
		world.AgentDies: .5, world.AgentNothing: .3, world.AgentMutes: .2,
		world.PodNew: 3, world.PodAdd: 15, world.PodStatus: 10, world.PodFinish: .5, world.PodDelete: 2,
		world.PodDel: 10, world.PodGone: 8, world.PodForce: .2,
		world.Pass: 8, world.JumpFar: .2, world.Collect: 3,
		world.NodeDelete: .1, world.NodeOff: .1, world.NodeMake: 1, world.CNDelete: .2, world.CNEdit: .3,
		world.PoolEdit: .5, world.BlockDelete: .4, world.BlockMake: .2, world.BlockTear: .2, world.BlockStrip: .2,
		world.BlockStatus: .2, world.Touch: .3, world.BackupTake: .1, world.BackupAgain: .1,
	}
	for _, group := range [][]world.Verb{
		{world.Watch, world.Tell}, {world.AgentSee}, {world.AgentReport}, {world.PodNew}, {world.PodDelete}, {world.Pass},
		{world.Call}, {world.Reconcile},
	} {
		factor := []float64{.3, 1, 1, 2}[r.IntN(4)]
		for _, verb := range group {
			w[verb] *= factor
		}
	}
	return w
}
