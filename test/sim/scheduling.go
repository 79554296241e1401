package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// withScheduling are the traits that can be combined with a scheduler.
const withScheduling = scheduling | windows | pace | pressure | dual

// unscheduledFaults remove addresses from under a Node's offer without the scheduler's
// knowledge: users remove published addresses, pods and Nodes vanish without their kubelets,
// and agents report too little.
const unscheduledFaults = world.AgentEmpty | world.NodeGone | world.CiliumNodeGone | world.BlockEdits | world.Torn | world.Edits |
	world.Restore | world.ForcedPods

// schedule makes a scheduler bind pods, more of them than there are addresses. Every other world
// keeps no address free, and every other one reclaims only blocks idle for long.
func schedule(seed uint64, c *world.Config, both bool) {
	r := rand.New(rand.NewPCG(seed, 15))
	c.Scheduling = &world.Scheduling{Pods: 6 + r.IntN(12)}
	c.Families, c.Pools[0].Spec.IPv6 = nil, nil
	c.Faults &^= unscheduledFaults
	c.Settings.OfferFamilies = []ipalloc.Family{ipalloc.IPv4}
	if both {
		haveBoth(c, "fd00::/123")
		c.Settings.OfferFamilies = []ipalloc.Family{ipalloc.IPv4, ipalloc.IPv6}
	}
	p := &c.Settings.Defaults.Policy
	if r.IntN(2) == 0 {
		p.MinFree, p.ExpandPercent = 0, 100
	}
	if r.IntN(2) == 0 {
		p.IdleFor = 10 * time.Minute
	}
	minFree := c.Upgraded.Defaults.Policy.MinFree
	c.Upgraded = c.Settings
	c.Upgraded.Defaults.Policy.MinFree = minFree
}

// crowded: one node takes all blocks before the others have any, and then its pods go.
func (d *director) crowded() {
	leader, _, ok := d.awake()
	if !ok {
		return
	}
	const node = "n1"
	d.hold(func(a world.Action) bool {
		return a.Verb == world.Reconcile && strings.HasPrefix(a.What, "node/") && a.What != "node/"+node
	})
	goesOn := []fits{works(leader), lives(node), passes, is(world.Schedule, "", ""), is(world.SchedulerSee, "", "")}
	d.drive(200, func() bool { return d.w.Serves(node) }, goesOn...)
	for range 20 {
		d.one(is(world.PodNew, node, ""), func(a world.Action) bool { return a.Verb == world.PodWait && strings.HasSuffix(a.What, "="+node) })
	}
	d.drive(400, never, goesOn...)
	d.drive(20, never, is(world.PodDelete, node, ""))
	d.drive(200, never, slices.Concat(goesOn, []fits{is(world.PodDelete, node, "")})...)
	d.release()
}
