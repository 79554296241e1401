package audit

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// shortage is the condition that the operator sets on Nodes.
const shortage corev1.NodeConditionType = "PodAddressShortage"

// nodeObjects checks that a node has the objects it should have.
func (c *check) nodeObjects(n *node) {
	if n.obj != nil {
		c.node(n)
		return
	}
	// blockAndNode reports blocks alone.
	if n.view != nil && len(n.view.Pool)+len(n.view.Listed()) > 0 {
		c.found(CiliumNodeWithoutNode, c.allocationObject(n.name), "has %d addresses in its pool and %d CIDRs in %s, and there is no such Node",
			len(n.view.Pool), len(n.view.Listed()), c.list)
	}
}

func (c *check) node(n *node) {
	for _, cond := range n.obj.Status.Conditions {
		if cond.Type == shortage && cond.Status == corev1.ConditionTrue {
			c.found(NodeShortOfAddresses, nodeObject(n.name), "%s: %s", cond.Reason, cond.Message)
		}
	}
	c.neverAgent(n)
	c.unserved(n)
	switch {
	case n.moving:
		c.found(NodeYetToMove, nodeObject(n.name), "was given %d CIDRs, holds %d blocks, and its agent reports nothing", len(n.view.AssignedCIDRs()), len(n.blocks))
	case n.awaits != "":
		c.awaitsLabels(n)
	case n.optedOut || n.paused:
	case n.view != nil && slices.ContainsFunc(n.pools, isDefault):
		c.families(n)
	case n.view != nil && n.hasCilium() && !n.view.givesAny():
		c.found(NodeServedByNoPool, nodeObject(n.name), "has a %s without addresses, and no PodIPPool serves its agent", c.kind)
	case n.view == nil && len(n.pools)+len(n.blocks) > 0:
		c.found(CiliumNodeMissing, nodeObject(n.name), "has no CiliumNode, though %d pools serve it and it holds %d blocks", len(n.pools), len(n.blocks))
	}
}

// unserved reports the requests of a node's agent and of its pods that no PodIPPool serves.
func (c *check) unserved(n *node) {
	if len(n.unserved) > 0 {
		c.found(NodeServedByNoPool, nodeObject(n.name), "%s", strings.Join(n.unserved, "; "))
	}
	for name, says := range n.unservedPods {
		namespace, pod, _ := strings.Cut(name, "/")
		c.add(Finding{Reason: PodServedByNoPool, Object: Object{Kind: "Pod", Namespace: namespace, Name: pod}, Others: []Object{nodeObject(n.name)}, Says: says})
	}
}

// neverAgent reports a node that has held blocks for long without an agent.
func (c *check) neverAgent(n *node) {
	lasts := func(b *crd.Block) bool { return b.Phase == ipalloc.InService && c.now.Sub(b.Created) >= c.StuckAfter }
	// In kubernetes mode a Node keeps its block as long as it exists.
	if n.optedOut && n.view != nil && n.view.BlockAssignment != nil && n.view.BlockAssignment.SingleBlock {
		return
	}
	if !n.agentSeen && !n.moving && c.anyAgent && slices.ContainsFunc(n.blocks, lasts) {
		c.found(NodeWithoutAgent, nodeObject(n.name), "holds %d blocks, and has never had an agent", len(n.blocks))
	}
}

// awaitsLabels reports pods that wait for an address while their node waits for its labels.
func (c *check) awaitsLabels(n *node) {
	if i := slices.IndexFunc(n.pods, func(p pod) bool { return len(p.ips) == 0 }); i >= 0 {
		waits := n.pods[i].object
		c.found(NodeAwaitsLabels, nodeObject(n.name), "%s; meanwhile pod %s/%s waits for an address", n.awaits, waits.Namespace, waits.Name)
	}
}

// hasCilium reports whether Cilium runs on a node that has the object which assigns blocks: in
// kubernetes mode every Node has it.
func (n *node) hasCilium() bool {
	w := n.view.BlockAssignment
	return w == nil || !w.SingleBlock || w.HasAgent || len(n.agents) > 0
}

// notOurs reports whether another IPAM serves a node's pods.
func (n *node) notOurs() bool {
	return n.optedOut || (n.view == nil || !n.hasCilium()) && len(n.blocks)+len(n.pools) == 0
}

// givesAny reports whether the agent has an address that pods can get.
func (cn *CiliumNode) givesAny() bool {
	return len(cn.published()) > 0 || cn.BlockAssignment != nil && len(cn.Listed())+len(cn.BlockAssignment.Runs) > 0
}

// isDefault reports whether a pool serves pods that request no other, and agents
// themselves.
func isDefault(p *crd.Pool) bool { return p.CiliumPool == "" }

// families checks that a node has addresses of each family that its pools provide.
func (c *check) families(n *node) {
	for _, p := range n.pools {
		if !isDefault(p) {
			continue // agents keep no reserve there
		}
		var missing []string
		for _, f := range ipalloc.Families() {
			if _, serves := p.Ranges(f); serves && n.view.ofFamily(f) == 0 && !n.pausedFor(f, "") && n.view.wants(f) && !n.view.runsWith(f) {
				missing = append(missing, f.String())
			}
		}
		if len(missing) > 0 {
			c.add(Finding{Reason: NodeWithoutAddresses, Object: nodeObject(n.name), Others: []Object{poolObject(p.Name)},
				Says: fmt.Sprintf("has no %s address in its pool, though PodIPPool %s serves it", strings.Join(missing, " and no "), p.Name)})
		}
	}
}
