package main

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// chooseByLabels adds a pool for each zone, which rules the zone's Nodes, to the pool that
// selects all Nodes.
func chooseByLabels(seed uint64, c *world.Config) {
	r := rand.New(rand.NewPCG(seed, 12))
	l := &world.Labels{Zones: []string{"east", "west"}, Taint: crd.DefaultStartupTaints()[0]}
	for i, zone := range l.Zones {
		p := world.Pool(zone, 5, int32(29+r.IntN(2)), []string{"10.0.9.0/28", "10.0.10.0/28"}[i])
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{world.ZoneLabel: zone}}
		if v6 := c.Pools[0].Spec.IPv6; v6 != nil && i == 0 {
			p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: v6.BlockSize, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00:9::/123"}}}
		}
		c.Pools = append(c.Pools, p)
	}
	c.Labels = l
	c.Settings.StartupTaints, c.Upgraded.StartupTaints = []string{l.Taint}, []string{l.Taint}
}

// moveOff makes Nodes move off the pool of a zone they have left, one or two at a time.
func moveOff(seed uint64, c *world.Config) {
	r := rand.New(rand.NewPCG(seed, 16))
	for _, p := range c.Pools {
		if p.Spec.NodeSelector != nil {
			p.Spec.UnselectedNodes.Policy = v1alpha1.UnselectedNodesDrain
			p.Spec.UnselectedNodes.MaxConcurrent = []*int32{nil, ptr.To[int32](2)}[r.IntN(2)]
		}
	}
	if c.Move == nil { // or the ranges of another IPAM could go
		c.Faults |= world.PoolEdits
	}
}

// haveOfPools gives Nodes and Services addresses of pools, inside and outside of nodes' blocks.
func haveOfPools(c *world.Config) {
	c.Cluster = &world.Cluster{}
	for _, addr := range []string{"10.0.0.2", "10.0.0.13", "10.0.1.3"} {
		c.Cluster.Addresses = append(c.Cluster.Addresses, netip.MustParseAddr(addr))
	}
	for _, cidr := range []string{"10.0.0.4/30", "10.0.3.0/29"} {
		c.Cluster.Services = append(c.Cluster.Services, netip.MustParsePrefix(cidr))
	}
}

// firstRead: a new node's labels arrive as its agent starts. The agent has already read the
// node's first blocks, or reads them while they are being replaced.
func (d *director) firstRead(leader, _, node, _ string) {
	d.hold(lives(node))
	d.label(node, "")
	d.await(80, func() bool { return len(d.w.Assigned(node)) > 0 }, works(leader))
	begins := func() {
		d.release()
		d.playOne(action(world.AgentStart, node, ""))
		d.hold(lives(node))
	}
	before := d.odds(.5)
	if before {
		begins()
	}
	d.playOne(action(world.NodeLabel, node, "zone="))
	d.await(80, func() bool { return d.leaves(node) }, works(leader))
	if !before {
		begins()
	}
	d.drive(60, never, works(leader))
}

// unreadable: the selector of a pool becomes invalid while a node holds blocks of it.
func (d *director) unreadable(leader, _, node, _ string) {
	zone := d.s.config.Labels.Zones[d.r.IntN(2)]
	d.label(node, zone)
	d.pods(node, 8)
	ofZone := func(b *v1alpha1.PodIPBlock) bool { return b.Spec.PoolName == zone }
	d.await(100, func() bool { return d.hasBlock(node, ofZone) }, works(leader), lives(node))
	selector := action(world.PoolEdit, "people", "selector="+zone)
	d.playOne(selector)
	d.drive(20, never, watches(leader, "PodIPPool"))
	d.drive(80, never, works(leader), lives(node))
	if d.odds(.5) {
		d.playOne(selector)
	}
}

// moveTogether: the Nodes of a zone leave it at once, while pods hold addresses of its pool.
// Only as many as the pool allows may move off it at a time.
func (d *director) moveTogether() {
	leader, _, ok := d.awake()
	if !ok {
		return
	}
	zone := d.s.config.Labels.Zones[d.r.IntN(2)]
	ofZone := func(b *v1alpha1.PodIPBlock) bool { return b.Spec.PoolName == zone }
	inZone := func(node string) func() bool {
		return func() bool { return d.hasBlock(node, ofZone) && d.w.Serves(node) && d.w.Settled(leader, node) }
	}
	nodes := []string{"n1", "n2"}
	for _, node := range nodes {
		d.label(node, zone)
		d.pods(node, 4)
		d.await(100, inZone(node), works(leader), lives(node))
	}
	for _, node := range nodes {
		d.label(node, "")
	}
	d.drive(20, never, watches(leader, "Node"))
	d.drive(100, never, works(leader), lives(nodes[0]), lives(nodes[1]))
}

// label sets the final labels of a Node: those of a zone, or none.
func (d *director) label(node, zone string) {
	d.playOne(func(a world.Action) bool {
		return a.Verb == world.NodeLabel && a.Who == node && a.What == "zone="+zone
	})
	d.playOne(action(world.NodeLabel, node, "untaint"))
}

// leaves reports whether a block of a node drains.
func (d *director) leaves(node string) bool {
	return d.hasBlock(node, func(b *v1alpha1.PodIPBlock) bool { return d.inPhase(b.Name, ipalloc.Draining) })
}

func (d *director) hasBlock(node string, of func(*v1alpha1.PodIPBlock) bool) bool {
	return slices.ContainsFunc(d.w.Blocks(), func(b *v1alpha1.PodIPBlock) bool { return b.Spec.NodeName == node && of(b) })
}
