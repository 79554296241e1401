package world

import (
	"net/netip"
	"slices"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/hostscope"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// podCIDROf returns the podCIDR of a family that a Node assigns to its agent.
func podCIDROf(obj client.Object, f ipalloc.Family) (netip.Prefix, bool) {
	if node, ok := obj.(*corev1.Node); ok {
		return hostscope.PodCIDR(node, f)
	}
	return netip.Prefix{}, false
}

// podCIDRsOf returns the podCIDRs that a Node assigns to its agent, IPv4 first.
func podCIDRsOf(obj client.Object) []netip.Prefix {
	var out []netip.Prefix
	for _, f := range ipalloc.Families() {
		if p, ok := podCIDROf(obj, f); ok {
			out = append(out, p)
		}
	}
	return out
}

// bootFixed starts an agent in kubernetes mode, which waits for its podCIDRs. It creates its
// CiliumNode only when it serves (daemon/cmd/daemon.go, configureDaemon: earlier only in
// cluster-pool, multi-pool and ENI mode; v1.20.1).
func (m *machine) bootFixed() {
	m.store, m.asked, m.phase = nil, false, waiting
	m.node = m.w.api.Get(KindNode, m.name).GetUID()
}

// openFixed takes the podCIDR of each family that the agent runs, for the rest of this run.
func (m *machine) openFixed() {
	m.old = &hostscope.Agent{}
	for _, family := range m.families {
		cidr, _ := podCIDROf(m.w.api.Get(KindNode, m.name), familyOf(family))
		m.old.CIDRs = append(m.old.CIDRs, cidr)
	}
}

// tellPodCIDRs writes into its CiliumNode which podCIDRs the agent runs with, at each write of
// it (pkg/nodediscovery/nodediscovery.go, mutateNodeResource, v1.20.1).
func (m *machine) tellPodCIDRs(cn *ciliumv2.CiliumNode) {
	cn.Spec.IPAM.PodCIDRs = nil
	for _, cidr := range m.old.CIDRs {
		cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(cidr))
	}
}

// hasPodCIDRs reports whether a Node assigns a podCIDR of each family that its agent runs,
// which the agent waits for (pkg/node/sync/local_node_sync_wait.go, v1.20.1).
func (m *machine) hasPodCIDRs() bool {
	return !slices.ContainsFunc(m.families, func(family agent.Family) bool {
		_, assigned := podCIDROf(m.w.api.Get(KindNode, m.name), familyOf(family))
		return !assigned
	})
}

// checkFixed checks the podCIDRs that an operator assigns to a Node.
func (r *modeRules) checkFixed(v Version) {
	if !r.fixed() || v.New == nil {
		return
	}
	for _, cidr := range podCIDRsOf(v.New) {
		if !slices.Contains(podCIDRsOf(v.Old), cidr) {
			r.checkPodCIDR(v.New, r.machine(v.Key), cidr)
		}
	}
}

// checkPodCIDR checks a podCIDR that is assigned to a Node. If users deleted the Node of a
// running agent, and the range of its block drains, the new Node gets another one.
func (r *modeRules) checkPodCIDR(node client.Object, m *machine, cidr netip.Prefix) {
	r.checkAssigned(m, cidr)
	switch has := r.otherBlocks(m, cidr); {
	case len(has) == 0:
	case (m.old == nil || node.GetUID() != m.node) && !slices.ContainsFunc(has, func(p netip.Prefix) bool { return !r.mustLeave(m, p) }):
		m.lostNode()
	default:
		r.violate(2, "Node %s was assigned %s while its agent or pods have %v", m.name, cidr, has)
	}
}

// otherBlocks returns the CIDRs, other than the given one and of its family, that the agent of a
// machine or its pods use.
func (r *modeRules) otherBlocks(m *machine, but netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	if m.old != nil {
		out = slices.Clone(m.old.CIDRs)
	}
	for _, e := range m.endpoints {
		for _, addr := range e.addrs() {
			if !e.forfeited && !slices.ContainsFunc(out, func(p netip.Prefix) bool { return p.Contains(addr) }) {
				out = append(out, r.blockWith(m.name, addr))
			}
		}
	}
	return slices.DeleteFunc(out, func(p netip.Prefix) bool {
		return p == but || ipalloc.FamilyOf(p.Addr()) != ipalloc.FamilyOf(but.Addr())
	})
}

// blockWith returns the CIDR of a node's block that contains an address, or the address alone.
func (r *modeRules) blockWith(node string, addr netip.Addr) netip.Prefix {
	if b := r.queries.blockWith(node, addr); b != nil {
		return cidrOf(b)
	}
	return netip.PrefixFrom(addr, addr.BitLen())
}

// mustLeave reports whether the block that an agent runs with is gone, or has to go: also if it
// cools down, and its pool does not select the Node that is back.
func (r *modeRules) mustLeave(m *machine, cidr netip.Prefix) bool {
	b, ok := r.api.Get(KindBlock, crd.BlockName(cidr)).(*v1alpha1.PodIPBlock)
	if !ok || b.Spec.NodeName != m.name || r.space.isAsked(b) {
		return true
	}
	pool, ok := r.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool)
	return ok && phaseOf(b) == v1alpha1.BlockCoolingDown && !r.selects(pool, m.name)
}

// runsWith returns the podCIDRs that an agent has reported to run with.
func (r *settledRules) runsWith(m *machine) []netip.Prefix {
	if cn := r.CiliumNode(m.name); cn != nil {
		return r.listOf(cn)
	}
	return nil
}

// runsWithout reports whether users deleted the Node of an agent that runs with a podCIDR of a
// family that is no longer a block of the node. Its Node gets no other one (docs/modes.md).
func (r *settledRules) runsWithout(m *machine, f ipalloc.Family) bool {
	return slices.ContainsFunc(r.runsWith(m), func(cidr netip.Prefix) bool {
		b, ok := r.api.Get(KindBlock, crd.BlockName(cidr)).(*v1alpha1.PodIPBlock)
		return ipalloc.FamilyOf(cidr.Addr()) == f && (!ok || b.Spec.NodeName != m.name)
	})
}

// lostNode evicts a machine that ran on while its Node was gone, if its addresses now belong to
// others or soon will: Kubernetes deletes the pods of a Node that is gone, including its agent's
// (pkg/controller/podgc, gcOrphaned), so the agent starts anew.
func (m *machine) lostNode() {
	for _, e := range m.endpoints {
		e.forfeited = true
	}
	m.evicted = true
	m.crash()
}

// leavePods deletes the pods of a machine that lost its Node, before its agent starts: an agent
// with a smaller block than before might find all its addresses taken.
func (m *machine) leavePods() {
	for _, slot := range sortedKeys(m.endpoints) {
		if m.evicted && m.endpoints[slot].forfeited && m.kubelet.podObject(slot) != nil {
			m.kubelet.podGone(slot)
		}
	}
	m.evicted = false
}

// checkAssigned checks that no pod elsewhere has an address in a CIDR assigned to a node.
func (r *modeRules) checkAssigned(m *machine, cidr netip.Prefix) {
	for _, other := range r.machines {
		for slot, e := range other.endpoints {
			if other != m && slices.ContainsFunc(e.addrs(), cidr.Contains) && !e.forfeited {
				r.violate(1, "%s is for node %s, and pod %s on node %s has %v", cidr, m.name, slot, other.name, e.addrs())
			}
		}
	}
}

// checkUnassigned checks that no pod elsewhere has an address in a block that is deleted, or that
// another node gets.
func (r *modeRules) checkUnassigned(b *v1alpha1.PodIPBlock, how string) {
	for _, m := range r.machines {
		for slot, e := range m.endpoints {
			for _, addr := range e.addrs() {
				if r.fixed() && cidrOf(b).Contains(addr) && !e.forfeited && m.name != b.Spec.NodeName && !r.inBlockOf(m.name, addr) {
					r.violate(1, "block %s was %s, and pod %s on node %s has %s", b.Name, how, slot, m.name, addr)
				}
			}
		}
	}
}

// isBeside reports whether a CIDR is another block of the node that has it.
func (r *modeRules) isBeside(b *v1alpha1.PodIPBlock, node string, cidr netip.Prefix) bool {
	other, ok := r.api.Get(KindBlock, crd.BlockName(cidr)).(*v1alpha1.PodIPBlock)
	return ok && other.Name != b.Name && other.Spec.NodeName == node
}

// checkFixedRest checks at rest that every Node has a block of each family as long as there are
// any, that its agent runs with them, and that no change is pending.
func (r *settledRules) checkFixedRest(when string, m *machine) {
	for _, family := range m.families {
		f := familyOf(family)
		assigned, has := podCIDROf(r.api.Get(KindNode, m.name), f)
		switch free := r.space.freeBlocks(m.name, f == ipalloc.IPv4, crd.DefaultCiliumPool); {
		case !has && r.runsWithout(m, f): // people have to drain the Node and delete it
		case !has && free > 0:
			r.violate(9, "%s: Node %s has no podCIDR of %s, and %d blocks are free", when, m.name, f, free)
		case has && m.hasPodCIDRs() && m.phase != serving:
			r.violate(9, "%s: the agent of %s has not come up, and has %s", when, m.name, assigned)
		case has && m.old != nil && !slices.Contains(m.old.CIDRs, assigned):
			r.violate(9, "%s: the agent of %s runs with %v, and its Node says %s", when, m.name, m.old.CIDRs, assigned)
		case has:
			r.checkAssignedRest(when, m, whole.Entry{Pool: crd.DefaultCiliumPool, CIDR: assigned})
		}
	}
	r.checkCooledRest(when, m)
}

// checkCooledRest checks at rest that no block of a node cools down.
func (r *settledRules) checkCooledRest(when string, m *machine) {
	for _, b := range r.Blocks() {
		if b.Spec.NodeName == m.name && phaseOf(b) == v1alpha1.BlockCoolingDown {
			r.violate(9, "%s: block %s of node %s still cools down", when, b.Name, m.name)
		}
	}
}
