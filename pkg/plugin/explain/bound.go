package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// explainBound writes why a pod that is bound to a node has no address yet.
func explainBound(s *cli.Text, c *clusterview.Cluster, pod *corev1.Pod) {
	node := pod.Spec.NodeName
	name := pod.Namespace + "/" + pod.Name
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		s.Line("It has ended on node %s, and needs no address.", node)
		return
	case len(pod.Status.PodIPs) > 0:
		s.Line("It is bound to node %s and has address %s.", node, pod.Status.PodIPs[0].IP)
		explainKept(s, c, pod)
		return
	}
	s.Line("It is bound to node %s and has no address yet.", node)
	snapshot := c.State.Snapshot(node, c.Nodes[node], c.Now)
	if message := snapshot.UnservedPods()[name].Message; message != "" {
		s.Line("It gets none: %s.", message)
		return
	}
	if waits := waitsForKept(c, name); waits != "" {
		s.Line("I%s.", waits[1:])
		return
	}
	if !snapshot.AgentSeen {
		s.Line("No Cilium agent has run there, and only an agent gives a pod its address: see the DaemonSet of the agents.")
		return
	}
	decisions := c.Decide(node)
	if own := slices.DeleteFunc(slices.Clone(decisions), func(d clusterview.Decision) bool { return !countsPod(&d, name) }); len(own) > 0 {
		decisions = own
	}
	if len(decisions) == 0 {
		s.Line("Node %s has no blocks, and no pool serves it: no PodIPPool's nodeSelector matches its labels.", node)
	}
	short := false
	for i := range decisions {
		d := &decisions[i]
		balance := expand.BalanceOf(&d.State, d.Plan, expand.Shortfall{}, d.Standing.MayChange())
		lacks := max(0, balance.Demand-balance.Has)
		if lacks == 0 {
			continue
		}
		short = true
		s.Line("")
		s.Line("The node lacks %s of %s: it needs %d and has %d.", suggest.Plural(lacks, "address", "addresses"), d.Family, balance.Demand, balance.Has)
		explainServing(c, s, node, d)
		explainGrowth(c, s, d)
	}
	if !short && len(decisions) > 0 {
		s.Line("The node has an address for each of its pods. The kubelet or the agent says why this one waits: kubectl -n %s describe pod %s.", pod.Namespace, pod.Name)
		s.Line("kubectl cilium-pool explain %s explains the node.", node)
	}
}

// explainKept names the owners that the addresses of a pod are kept for.
func explainKept(s *cli.Text, c *clusterview.Cluster, pod *corev1.Pod) {
	for _, ip := range pod.Status.PodIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil {
			continue
		}
		if owner := c.State.Ledger.Pins.OwnerOf(netip.PrefixFrom(addr, addr.BitLen())); owner != "" {
			s.Line("%s is kept for %s.", addr, crd.OwnerWords(owner))
		}
	}
}

// waitsForKept returns that a pod waits for the address of its owner, which another pod has, or another node; "": it does
// not.
func waitsForKept(c *clusterview.Cluster, name string) string {
	pods := c.State.Pods.OfOwners(c.State.CiliumPools.Picking())
	i := slices.IndexFunc(pods, func(pod state.OwnerPod) bool { return pod.Name == name })
	if i < 0 {
		return ""
	}
	if waits := state.HoldersOf(pods).WaitsFor(&pods[i], c.State.Ledger.Pins); waits != "" {
		return waits
	}
	for _, choice := range pods[i].Choices {
		owner := crd.OwnerOfPool(choice.Pool)
		for _, cidr := range c.State.Ledger.Pins.Of(owner) {
			block, held := c.State.Ledger.Block(cidr)
			if held && block.Node != pods[i].Node {
				return fmt.Sprintf("it waits for %s, which is kept for %s: %s", cidr.Addr(), crd.OwnerWords(owner), movesFrom(c, block))
			}
		}
	}
	return ""
}

// movesFrom describes how the address of an owner leaves another node.
func movesFrom(c *clusterview.Cluster, block crd.Block) string {
	node := c.Nodes[block.Node]
	switch {
	case block.Phase == ipalloc.CoolingDown:
		return fmt.Sprintf("it left node %s %s ago, and cools down there (cooldown of PodIPPool %s)", block.Node, cli.Age(c.Now, block.Since), block.Pool)
	case node != nil && clusterview.IsLost(node):
		return fmt.Sprintf("node %s has it and is down: once the machine is off, delete its Node", block.Node)
	}
	return fmt.Sprintf("node %s has it until its agent returns it, within a minute of the end of the last pod there", block.Node)
}

// countsPod reports whether a pod is part of the demand that a decision is about.
func countsPod(d *clusterview.Decision, name string) bool {
	return slices.ContainsFunc(d.State.Pods, func(p expand.Pod) bool { return p.Name == name })
}

// explainGivingNone names the pools that select a node and give it no block, by intent or by mistake.
func explainGivingNone(c *clusterview.Cluster, s *cli.Text, name string, d *clusterview.Decision) {
	node := c.Nodes[name]
	if node == nil {
		return
	}
	for _, pool := range c.State.Pools.Serving(cmp.Or(d.CiliumPool, crd.DefaultCiliumPool)) {
		_, has := pool.FullCut(d.Family)
		_, assigns := pool.Cut(d.Family)
		if has && !assigns && pool.Selects(labels.Set(node.Labels)) && !slices.Contains(d.Pools, pool) {
			s.Line("Pool %s selects it and gives no block: %s.", pool.Name, whyNone(c, pool, d.Family))
		}
	}
}

// whyNone returns why no block can be claimed from a pool.
func whyNone(c *clusterview.Cluster, pool *crd.Pool, f ipalloc.Family) string {
	ranges, _ := pool.Ranges(f)
	all := func(is func(crd.Range) bool) bool {
		return len(ranges.CIDRs) > 0 && !slices.ContainsFunc(ranges.CIDRs, func(r crd.Range) bool { return !is(r) })
	}
	switch {
	case pool.Deleting:
		return "it is being deleted"
	case c.State.Pools.Invalid(pool.Name) != nil:
		return "it is invalid: " + c.State.Pools.Invalid(pool.Name).Error()
	case pool.Paused:
		return "its spec.paused is true"
	case all(crd.Range.Drains):
		return "all its CIDRs drain (allocationPolicy: Drain)"
	case all(func(r crd.Range) bool { return !r.Allocates() && !r.Drains() }):
		return "all its CIDRs are cordoned (allocationPolicy: Cordon)"
	case all(func(r crd.Range) bool { return !r.Allocates() }):
		return "its CIDRs are cordoned or drain"
	}
	return "other pools assign its addresses, or its CIDRs are cordoned: kubectl cilium-pool get pools -o wide"
}
