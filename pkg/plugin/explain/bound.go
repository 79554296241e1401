package explain

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
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
		return
	}
	s.Line("It is bound to node %s and has no address yet.", node)
	snapshot := c.State.Snapshot(node, c.Nodes[node], c.Now)
	if message := snapshot.UnservedPods()[name].Message; message != "" {
		s.Line("It gets none: %s.", message)
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
