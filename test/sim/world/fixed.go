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
)

// podCIDRAnnotation is of a Node (pkg/annotation/k8s.go, V4CIDRName, v1.20.1).
const podCIDRAnnotation = "network.cilium.io/ipv4-pod-cidr"

// fixed reports whether agents are assigned one block by their Nodes before they start.
func (w *World) fixed() bool { return w.cfg.Settings.Mode == ciliumnode.Kubernetes }

// carrier returns the kind of object that assigns blocks to agents.
func (w *World) carrier() Kind {
	if w.fixed() {
		return KindNode
	}
	return KindCiliumNode
}

// podCIDROf is what a Node tells its agent.
func podCIDROf(obj client.Object) (netip.Prefix, bool) {
	if node, ok := obj.(*corev1.Node); ok {
		p, err := netip.ParsePrefix(node.Annotations[podCIDRAnnotation])
		return p, err == nil
	}
	return netip.Prefix{}, false
}

// bootFixed starts an agent in kubernetes mode, which waits for its podCIDR.
func (m *machine) bootFixed() {
	m.store, m.asked, m.phase = nil, false, waiting
	m.discover()
}

// openFixed takes the podCIDR, for as long as this run lasts, and says so in its
// CiliumNode (pkg/nodediscovery/nodediscovery.go, mutateNodeResource, v1.20.1).
func (m *machine) openFixed() {
	cidr, _ := podCIDROf(m.w.api.Get(KindNode, m.name))
	m.old = &oldAgent{cidrs: []netip.Prefix{cidr}, taken: map[netip.Addr]string{}}
	if cn, ok := m.w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode); ok {
		cn = cn.DeepCopy()
		cn.Spec.IPAM.PodCIDRs = []iputil.Prefix{iputil.PrefixFrom(cidr)}
		m.w.must(m.w.api.Update(cn, false))
	}
}

// holdFixed checks what an operator writes to a Node: one of its own blocks, which no
// other node has, and only once.
func (w *World) holdFixed(v Version) {
	if !w.fixed() || v.New == nil {
		return
	}
	before, had := podCIDROf(v.Old)
	after, has := podCIDROf(v.New)
	switch m := w.machine(v.Key); {
	case had && before != after:
		w.violate(2, "the podCIDR of Node %s was %s, and now is %s: its agent takes another when it starts again", v.Key, before, after)
	case !has || had:
	default:
		w.holdAlone(m, after)
		if b, ok := w.api.Get(KindBlock, crd.BlockName(after)).(*v1alpha1.PodIPBlock); !ok || b.Spec.NodeName != v.Key {
			w.violate(1, "Node %s was assigned %s, which is no block of it", v.Key, after)
		}
		if m.old != nil && !slices.Contains(m.old.cidrs, after) {
			w.violate(2, "Node %s was assigned %s while its agent runs with %v", v.Key, after, m.old.cidrs)
		}
	}
}

// holdAlone checks that a CIDR that a node gets is assigned to no other node, and that
// no pod elsewhere has an address of it.
func (w *World) holdAlone(m *machine, cidr netip.Prefix) {
	for _, other := range w.machines {
		if other == m {
			continue
		}
		if assigned, ok := podCIDROf(w.api.Get(KindNode, other.name)); ok && assigned.Overlaps(cidr) {
			w.violate(1, "%s is for node %s, and Node %s is assigned %s", cidr, m.name, other.name, assigned)
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
		if assigned, ok := podCIDROf(w.api.Get(KindNode, m.name)); ok && assigned.Overlaps(cidr) && w.fixed() {
			w.violate(1, "block %s was given up, and Node %s is assigned %s", b.Name, m.name, assigned)
		}
	}
}

// holdFixedRest checks at rest that every Node has its block as long as there are
// any, that its agent runs with it, and that none is on its way.
func (w *World) holdFixedRest(when string, m *machine) {
	assigned, has := podCIDROf(w.api.Get(KindNode, m.name))
	switch {
	case !has && w.room(m.name) > 0:
		w.violate(9, "%s: Node %s has no podCIDR, and %d blocks are free", when, m.name, w.room(m.name))
	case has && m.phase != serving:
		w.violate(9, "%s: the agent of %s has not come up, and has %s", when, m.name, assigned)
	case has && !slices.Contains(m.old.cidrs, assigned):
		w.violate(9, "%s: the agent of %s runs with %v, and its Node says %s", when, m.name, m.old.cidrs, assigned)
	case has:
		w.holdAssignedRest(when, m, listed{crd.DefaultCiliumPool, assigned})
	}
	for _, name := range w.api.Keys(KindBlock) {
		b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if b.Spec.NodeName == m.name && meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockCoolingDown) {
			w.violate(9, "%s: block %s of node %s still cools down", when, name, m.name)
		}
	}
}
