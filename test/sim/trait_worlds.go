package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// beginElsewhere starts a world in another IPAM: each node has CIDRs among 16 addresses of its own
// per family, in a range that the pool also has. Users do no damage in worlds with this trait,
// because here a migration must be able to finish.
func beginElsewhere(seed uint64, c *world.Config, t traits) {
	r := rand.New(rand.NewPCG(seed, 7))
	families := []ipalloc.Family{ipalloc.IPv4}
	c.Families, c.Pools[0].Spec.IPv6 = nil, nil
	c.Pools[0].Spec.IPv4.CIDRs = append(c.Pools[0].Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.0.4.0/26"})
	if t.has(dual) {
		families = []ipalloc.Family{ipalloc.IPv4, ipalloc.IPv6}
		haveBoth(c, "fd00::/122", "fd00::400/122")
	}
	m := &world.Move{
		From:  []adopt.Source{adopt.ClusterPool, adopt.Kubernetes, adopt.MultiPool, adopt.CRD}[r.IntN(4)],
		Pools: map[netip.Prefix]string{},
	}
	for i := range c.Nodes {
		var cidrs []netip.Prefix
		for _, f := range families {
			some := given(r, m.From, f, 16*i)
			if cidrs = append(cidrs, some...); m.From == adopt.MultiPool {
				m.Pools[some[1]] = "blue"
			}
		}
		m.Given = append(m.Given, cidrs)
	}
	c.Move, c.Reserve = m, map[string]int{crd.DefaultCiliumPool: 1 + r.IntN(2), "blue": 1}
	c.Faults &^= world.NodeGone | world.CiliumNodeGone | world.PoolEdits | world.BlockEdits | world.Torn | world.Edits |
		world.Restore | world.AgentMute
}

// haveBoth makes all agents run both families and gives the first pool these IPv6 ranges.
func haveBoth(c *world.Config, cidrs ...string) {
	c.Families = []agent.Family{agent.IPv4, agent.IPv6}
	ranges := &v1alpha1.IPv6Ranges{BlockSize: 125}
	for _, cidr := range cidrs {
		ranges.CIDRs = append(ranges.CIDRs, v1alpha1.PoolCIDR{CIDR: cidr})
	}
	c.Pools[0].Spec.IPv6 = ranges
}

// given returns the CIDRs that a node has from the other IPAM in one family, starting at the
// address numbered first.
func given(r *rand.Rand, from adopt.Source, f ipalloc.Family, first int) []netip.Prefix {
	at := func(offset, bits int) netip.Prefix {
		if f == ipalloc.IPv6 {
			return netip.MustParsePrefix(fmt.Sprintf("fd00::4%02x/%d", first+offset, 96+bits))
		}
		return netip.MustParsePrefix(fmt.Sprintf("10.0.4.%d/%d", first+offset, bits))
	}
	switch from {
	case adopt.MultiPool:
		return []netip.Prefix{at(8, 29), at(0, 30), at(4, 30)}[:max(2, 1+r.IntN(3))]
	case adopt.CRD:
		return []netip.Prefix{at(0, 29), at(8, 30)}[:1+r.IntN(2)]
	}
	return []netip.Prefix{at(0, 28+r.IntN(3))}
}

// askForPools makes the pods of a world request the Cilium pools blue and green. Users create
// and delete the PodIPPools that serve them, some of which exist from the start. Unless both is
// set, these have IPv4 only.
func askForPools(seed uint64, c *world.Config, both bool) {
	r := rand.New(rand.NewPCG(seed, 11))
	size := int32(29 + r.IntN(2))
	c.Families, c.Pools[0].Spec.IPv6 = nil, nil
	c.Asking = &world.Asking{Served: []*v1alpha1.PodIPPool{
		served("blue", "blue", size, "10.0.5.0/28"), served("green", "green", 30, "10.0.6.0/28"),
		served("more-blue", "blue", 30, "10.0.7.0/29"),
		// These have the same name and never exist at the same time.
		served("either", "blue", 30, "10.0.8.0/29"), served("either", "green", 30, "10.0.8.0/29"),
	}}
	if rand.New(rand.NewPCG(seed, 21)).IntN(3) == 0 { // a fixed set of addresses, one by one
		green := &c.Asking.Served[1].Spec
		green.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 32, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.6.0/30"}}}
		if !both { // and for pods by their names
			c.Asking.Stays = 2
			green.PodAddresses = &v1alpha1.PodAddresses{
				PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"wants": "stay"}}, ReleaseAfter: "5m",
			}
			if rand.New(rand.NewPCG(seed, 22)).IntN(2) == 0 {
				c.Asking.Stays = 3
				c.Asking.ByLabel = true
				green.PodAddresses.OwnerLabel = world.OwnerLabel
			}
		}
	}
	if both {
		haveBoth(c, "fd00::/122")
		for i, p := range c.Asking.Served {
			p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: fmt.Sprintf("fd00::5%d0/124", min(i, 3))}}}
		}
	}
	for _, pool := range c.Asking.Served[:2] {
		if r.IntN(4) > 0 {
			c.Pools = append(c.Pools, pool)
		}
	}
	if r.IntN(3) == 0 {
		c.Reserve["blue"] = 1 + r.IntN(2)
	}
	c.Faults |= world.PoolEdits
	c.Settings.KeepCiliumPools, c.Upgraded.KeepCiliumPools = true, true
}

// picked: a pod comes with labels that alone choose its pool.
func (d *director) picked(leader, _, node, _ string) {
	d.await(200, func() bool {
		return d.w.Serves(node) && d.w.API().Get(world.KindCiliumPool, "blue") != nil
	}, works(leader), lives(node))
	d.playOne(action(world.CiliumPoolEdit, "people", "pick-pods=blue"))
	d.playOne(func(a world.Action) bool {
		return a.Verb == world.PodNew && a.Who == node && strings.HasSuffix(a.What, "=label-blue")
	})
	d.drive(100, never, works(leader), lives(node))
}

// withScheduling are the traits that can be combined with a scheduler.
const withScheduling = scheduling | windows | pace | pressure | dual

// unscheduledFaults remove addresses from under a Node's offer without the scheduler's
// knowledge: users remove published addresses, pods and Nodes vanish without their kubelets,
// and agents report too little.
const unscheduledFaults = world.AgentEmpty | world.NodeGone | world.CiliumNodeGone | world.BlockEdits | world.Torn | world.Edits |
	world.Restore | world.ForcedPods

// schedule makes a scheduler bind pods, more of them than there are addresses. Every other world
// keeps no address free, and every other one reclaims only blocks idle for long. In every other one
// of multi-pool mode half of its pods request Cilium pool blue.
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
	minFreeAddresses := c.Upgraded.Defaults.Policy.MinFree
	c.Upgraded = c.Settings
	c.Upgraded.Defaults.Policy.MinFree = minFreeAddresses
	if c.Settings.Mode == ciliumnode.MultiPool && r.IntN(2) == 0 {
		blue := served("blue", "blue", int32(29+r.IntN(2)), "10.0.5.0/27")
		if both {
			blue.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 125, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::500/123"}}}
		}
		c.Pools, c.Scheduling.CiliumPools = append(c.Pools, blue), []string{crd.DefaultCiliumPool, "blue"}
	}
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
	goesOn := []fits{works(leader), lives(node), passes, action(world.Schedule, "", ""), action(world.SchedulerSee, "", "")}
	d.drive(200, func() bool { return d.w.Serves(node) }, goesOn...)
	for range 20 {
		d.playOne(action(world.PodNew, node, ""), func(a world.Action) bool { return a.Verb == world.PodWait && strings.HasSuffix(a.What, "="+node) })
	}
	d.drive(400, never, goesOn...)
	d.drive(20, never, action(world.PodDelete, node, ""))
	d.drive(200, never, slices.Concat(goesOn, []fits{action(world.PodDelete, node, "")})...)
	d.release()
}

// switchFamilies adds both families to a world. Users remove IPv6 from the first pool and from
// agents, and bring it back. In multi-pool mode they only bring it: an agent without IPv6 takes
// the IPv6 blocks off its list, whatever pods have of them (multiPoolManager.updateLocalNode).
func switchFamilies(c *world.Config) {
	haveBoth(c, "fd00::/122")
	c.SwitchesFamilies = true
	c.Faults |= world.PoolEdits
}

// switchAll restarts all agents with IPv4 only, or with both families.
func (d *director) switchAll(what string) {
	for _, node := range []string{"n1", "n2", "n3"} {
		d.playOne(action(world.AgentFamilies, node, what))
	}
}

// switchOff removes IPv6 from all agents and from the pool, leaves time for blocks to be
// released, and brings it back.
func (d *director) switchOff() {
	family := action(world.PoolEdit, "people", "family")
	d.switchAll("ipv4")
	d.playOne(family)
	d.drive(3, never, action(world.PodDelete, "", ""))
	for range 4 {
		d.drive(80, never, goesOn, passes, dies)
		if d.playOne(family); d.w.API().Get(world.KindPool, "main").(*v1alpha1.PodIPPool).Spec.IPv6 == nil {
			break
		}
	}
	d.drive(d.r.IntN(60), never, goesOn, passes, dies)
	d.playOne(family)
	if d.odds(.5) { // some agents go on naming the addresses that their routers had
		node, _ := d.nodes()
		d.playOne(action(world.AgentFamilies, node, "all"))
		d.drive(80, never, goesOn, passes)
	}
	d.switchAll("all")
}

// dies matches the end of an operator or a command at any time, and the outcomes of calls.
// Agents die only by chance: between a mark and a report that costs pods (docs/reliability.md).
func dies(a world.Action) bool {
	switch a.Verb {
	case world.KillOperator, world.CallKills, world.CallUnheard,
		world.CommandDies, world.CommandKills, world.CommandUnheard, world.CommandFails:
		return true
	}
	return false
}

// goesOn matches the steps that need no users.
func goesOn(a world.Action) bool { return a.Verb.GoesOn() && a.What != "stale" }

// compact makes operators compact blocks, also of nodes with few addresses to spare.
func compact(c *world.Config) {
	for _, s := range []*config.Settings{&c.Settings, &c.Upgraded} {
		s.CompactBlocks = true
		p := &s.Defaults.Policy
		p.ExpandPercent, p.ReclaimPercent, p.IdleFor = 100, 99, 30*time.Second
	}
	c.Reserve[crd.DefaultCiliumPool] = 1
}

// scattered: pods use several blocks of a node, few stay, and much time passes.
func (d *director) scattered(leader, _, node, _ string) {
	goesOn := []fits{works(leader), lives(node), passes}
	d.drive(9, never, action(world.PodNew, node, ""))
	d.drive(150, never, goesOn...)
	d.drive(5, never, action(world.PodDelete, node, ""))
	d.drive(100, never, goesOn...)
}

// served returns a PodIPPool that serves a Cilium pool.
func served(name, ciliumPool string, size int32, cidr string) *v1alpha1.PodIPPool {
	p := world.Pool(name, 1, size, cidr)
	p.Spec.CiliumPoolName = ciliumPool
	return p
}

// restoreEtcd puts etcd back to older copies. It excludes faults that destroy reports of agents, or parts of the copy
// (docs/reliability.md, limits).
func restoreEtcd(c *world.Config) {
	c.EtcdRestores = true
	c.Faults &^= world.NodeGone | world.CiliumNodeGone | world.Torn | world.Edits | world.Restore | world.AgentEmpty | world.AgentMute |
		world.ForcedPods | world.StaleList | world.BlockEdits | world.PoolEdits
}
