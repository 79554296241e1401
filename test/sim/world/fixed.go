package world

import (
	"net/netip"
	"slices"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// podCIDRAnnotations are of a Node, by family (pkg/annotation/k8s.go, V4CIDRName and
// V6CIDRName, v1.20.1).
var podCIDRAnnotations = [2]string{ipalloc.IPv4: "network.cilium.io/ipv4-pod-cidr", ipalloc.IPv6: "network.cilium.io/ipv6-pod-cidr"}

// fixed reports whether agents are assigned one block by their Nodes before they start.
func (w *World) fixed() bool { return w.cfg.Settings.Mode == ciliumnode.Kubernetes }

// carrier returns the kind of object that assigns blocks to agents.
func (w *World) carrier() Kind {
	if w.fixed() {
		return KindNode
	}
	return KindCiliumNode
}

// podCIDROf is what a Node tells its agent of a family.
func podCIDROf(obj client.Object, f ipalloc.Family) (netip.Prefix, bool) {
	if node, ok := obj.(*corev1.Node); ok {
		p, err := netip.ParsePrefix(node.Annotations[podCIDRAnnotations[f]])
		return p, err == nil
	}
	return netip.Prefix{}, false
}

// podCIDRsOf is what a Node tells its agent, IPv4 first.
func podCIDRsOf(obj client.Object) []netip.Prefix {
	var out []netip.Prefix
	for _, f := range ipalloc.Families() {
		if p, ok := podCIDROf(obj, f); ok {
			out = append(out, p)
		}
	}
	return out
}

// bootFixed starts an agent in kubernetes mode, which waits for its podCIDRs.
func (m *machine) bootFixed() {
	m.store, m.asked, m.phase = nil, false, waiting
	m.discover()
}

// openFixed takes the podCIDR of each family that the agent runs, for as long as this run
// lasts, and says so in its CiliumNode (pkg/nodediscovery/nodediscovery.go,
// mutateNodeResource, v1.20.1).
func (m *machine) openFixed() {
	m.old = &oldAgent{taken: map[netip.Addr]string{}}
	for _, family := range m.families {
		cidr, _ := podCIDROf(m.w.api.Get(KindNode, m.name), familyOf(family))
		m.old.cidrs = append(m.old.cidrs, cidr)
	}
	if cn, ok := m.w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode); ok {
		cn = cn.DeepCopy()
		cn.Spec.IPAM.PodCIDRs = nil
		for _, cidr := range m.old.cidrs {
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(cidr))
		}
		m.w.must(m.w.api.Update(cn, false))
	}
}

// hasPodCIDRs says that a Node tells its agent a podCIDR of each family that it runs,
// which it waits for (pkg/node/sync/local_node_sync_wait.go, v1.20.1).
func (m *machine) hasPodCIDRs() bool {
	return !slices.ContainsFunc(m.families, func(family agent.Family) bool {
		_, assigned := podCIDROf(m.w.api.Get(KindNode, m.name), familyOf(family))
		return !assigned
	})
}

// holdFixed checks what an operator writes to a Node: one of its own blocks of each
// family, which no other node has, and only once.
func (w *World) holdFixed(v Version) {
	if !w.fixed() || v.New == nil {
		return
	}
	for _, f := range ipalloc.Families() {
		before, had := podCIDROf(v.Old, f)
		after, has := podCIDROf(v.New, f)
		switch {
		case had && before != after:
			w.violate(2, "the podCIDR of Node %s was %s, and now is %s: its agent takes another when it starts again", v.Key, before, after)
		case has && !had:
			w.holdPodCIDR(w.machine(v.Key), after)
		}
	}
}

// holdPodCIDR checks a podCIDR that a Node is assigned.
func (w *World) holdPodCIDR(m *machine, cidr netip.Prefix) {
	w.holdAlone(m, cidr)
	if b, ok := w.api.Get(KindBlock, crd.BlockName(cidr)).(*v1alpha1.PodIPBlock); !ok || b.Spec.NodeName != m.name {
		w.violate(1, "Node %s was assigned %s, which is no block of it", m.name, cidr)
	}
	if m.old != nil && !slices.Contains(m.old.cidrs, cidr) {
		w.violate(2, "Node %s was assigned %s while its agent runs with %v", m.name, cidr, m.old.cidrs)
	}
}

// holdAlone checks that a CIDR that a node gets is assigned to no other node, and that
// no pod elsewhere has an address of it.
func (w *World) holdAlone(m *machine, cidr netip.Prefix) {
	for _, other := range w.machines {
		if other == m {
			continue
		}
		if assigned := podCIDRsOf(w.api.Get(KindNode, other.name)); slices.ContainsFunc(assigned, cidr.Overlaps) {
			w.violate(1, "%s is for node %s, and Node %s is assigned %v", cidr, m.name, other.name, assigned)
		}
		for slot, e := range other.endpoints {
			if slices.ContainsFunc(e.addrs(), cidr.Contains) && !e.forfeited {
				w.violate(1, "%s is for node %s, and pod %s on node %s has %v", cidr, m.name, slot, other.name, e.addrs())
			}
		}
	}
}

// holdUnassigned checks that a deleted block is assigned to no Node.
func (w *World) holdUnassigned(b *v1alpha1.PodIPBlock) {
	cidr := netip.MustParsePrefix(b.Spec.CIDR)
	for _, m := range w.machines {
		if assigned := podCIDRsOf(w.api.Get(KindNode, m.name)); w.fixed() && slices.ContainsFunc(assigned, cidr.Overlaps) {
			w.violate(1, "block %s was given up, and Node %s is assigned %v", b.Name, m.name, assigned)
		}
	}
}

// holdFixedRest checks at rest that every Node has its block of each family as long as
// there are any, that its agent runs with them, and that none is on its way.
func (w *World) holdFixedRest(when string, m *machine) {
	for _, family := range m.families {
		f := familyOf(family)
		assigned, has := podCIDROf(w.api.Get(KindNode, m.name), f)
		switch free := w.freeBlocks(m.name, f == ipalloc.IPv4, crd.DefaultCiliumPool); {
		case !has && free > 0:
			w.violate(9, "%s: Node %s has no podCIDR of %s, and %d blocks are free", when, m.name, f, free)
		case has && m.hasPodCIDRs() && m.phase != serving:
			w.violate(9, "%s: the agent of %s has not come up, and has %s", when, m.name, assigned)
		case has && m.old != nil && !slices.Contains(m.old.cidrs, assigned):
			w.violate(9, "%s: the agent of %s runs with %v, and its Node says %s", when, m.name, m.old.cidrs, assigned)
		case has:
			w.holdAssignedRest(when, m, listed{crd.DefaultCiliumPool, assigned})
		}
	}
	for _, name := range w.api.Keys(KindBlock) {
		b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if b.Spec.NodeName == m.name && meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockCoolingDown) {
			w.violate(9, "%s: block %s of node %s still cools down", when, name, m.name)
		}
	}
}
