package world

import (
	"net/netip"
	"slices"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// leaving says that an address with this release entry is one that no pod can get.
func leaving(entry ipamtypes.IPReleaseStatus) bool {
	switch entry {
	case "marked-for-release", "ready-for-release", "released":
		return true
	}
	return false
}

// noteForPods counts what an operator does for pods that wait for addresses.
func (w *World) noteForPods(v Version) {
	now, _ := v.New.(*v1alpha1.PodIPBlock)
	if w.sched == nil || now == nil {
		return
	}
	cidr, err := netip.ParsePrefix(now.Spec.CIDR)
	if err != nil {
		return
	}
	switch expected, recall := w.needsOf(w.writer, now.Spec.NodeName); {
	case v.Old == nil && expected > 0:
		w.Counts.Did["claim for waiting pods"]++
	case phaseOf(now) == v1alpha1.BlockDraining && phaseOf(v.Old.(*v1alpha1.PodIPBlock)) == "" && slices.Contains(recall, cidr):
		w.Counts.Did["recall"]++
		if slices.ContainsFunc(w.machines, w.lacksFirstBlock) {
			w.Counts.Did["recall for a first block"]++
		}
	}
}

// needsOf is what an operator has assigned to a node, for pods that wait.
func (w *World) needsOf(o *Operator, node string) (expected int, recall []netip.Prefix) {
	if w.sched == nil {
		return 0, nil
	}
	return o.parts.Node.Unscheduled.Needs(node, ipalloc.IPv4, 0)
}

// holdScheduledRest checks at rest that each Node offers what there is, that no pod
// waits for an address that a node could get, and no node for a first block that another
// one does not need.
func (w *World) holdScheduledRest(when string) {
	if w.sched == nil {
		return
	}
	for _, m := range w.machines {
		w.holdOffer(when, m)
		w.holdFirstBlock(when, m)
	}
	for _, slot := range w.sched.slots {
		if pod := w.sched.pod(slot); pod != nil && pod.Spec.NodeName == "" {
			w.holdWaiting(when, pod)
		}
	}
}

// holdOffer checks what a Node offers at rest: no more addresses than pods could have,
// and all of them but for two, which its agent may take yet.
func (w *World) holdOffer(when string, m *machine) {
	const agents = 2
	node, ok := w.api.Get(KindNode, m.name).(*corev1.Node)
	if !ok || m.phase != serving {
		return
	}
	u, least := w.addressUse(m), w.inService(m)
	held := 0 // by pods that request
	for _, slot := range w.slots {
		if pod := m.podObject(slot); pod != nil && requests(pod) && m.endpoints[slot] != nil {
			held++
		}
	}
	switch offer := offerOf(node); {
	case offer > max(u.free+held, held):
		w.violate(12, "%s: Node %s offers %d addresses; its pods have %d, and %d are free", when, m.name, offer, held, u.free)
	case offer < least-agents-u.plain:
		w.violate(9, "%s: Node %s offers %d of %d addresses in service", when, m.name, offer, least)
	}
}

// inService counts the published addresses of a node's blocks in service that pods may
// have, but for the agent's.
func (w *World) inService(m *machine) int {
	cn, _ := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	n := 0
	for key, entry := range w.poolOf(cn) {
		addr, err := netip.ParseAddr(key)
		if err != nil || entry.Owner != "" || leaving(cn.Status.IPAM.ReleaseIPs[key]) || m.router[agent.IPv4] == addr || w.reserved(addr) {
			continue
		}
		for _, name := range w.api.Keys(KindBlock) {
			b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
			if cidr, err := netip.ParsePrefix(b.Spec.CIDR); err == nil && b.Spec.NodeName == m.name && cidr.Contains(addr) && phaseOf(b) == "" && !w.asked(b) && !isEdge(cidr, addr) {
				n++
			}
		}
	}
	return n
}

// holdWaiting checks that a pod that is pending at rest could not be bound.
func (w *World) holdWaiting(when string, pod *corev1.Pod) {
	for _, m := range w.machines {
		node, ok := w.api.Get(KindNode, m.name).(*corev1.Node)
		if !ok || !suits(pod, node) || m.phase != serving {
			continue
		}
		if n := w.freeBlocks(m.name, true, "default"); n > 0 && w.blocksOf(m.name) < w.cfg.Settings.Defaults.Policy.MaxBlocks {
			w.violate(9, "%s: pod %s is pending, and node %s could get %d blocks", when, keyOf(pod), m.name, n)
		}
		for _, other := range w.machines {
			if block := w.spareBlock(other, m.name); block != "" {
				w.violate(9, "%s: pod %s is pending, and block %s of node %s is idle, which node %s could get", when, keyOf(pod), block, other.name, m.name)
			}
		}
	}
}

// holdFirstBlock checks that no other node could spare a block for a node that has none.
func (w *World) holdFirstBlock(when string, m *machine) {
	if !w.lacksFirstBlock(m) {
		return
	}
	for _, other := range w.machines {
		if block := w.spareBlock(other, m.name); block != "" {
			w.violate(9, "%s: node %s has no block, and block %s of node %s is idle, which it could get", when, m.name, block, other.name)
		}
	}
}

// lacksFirstBlock says that there is a Node without a block, and that its agent cannot start.
func (w *World) lacksFirstBlock(m *machine) bool {
	cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	return ok && w.api.Get(KindNode, m.name) != nil && m.phase != serving && w.blocksOf(m.name) == 0 && len(w.poolOf(cn)) == 0
}

func (w *World) blocksOf(node string) int {
	n := 0
	for _, name := range w.api.Keys(KindBlock) {
		if w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock).Spec.NodeName == node {
			n++
		}
	}
	return n
}

// spareBlock is a block of which nothing is in use, and which a node does not need for its
// pods and its reserve, of a pool from which another node may claim; "": there is none.
func (w *World) spareBlock(m *machine, by string) string {
	cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	policy, ruling := w.policy(m.name, true)
	if !ok || m.name == by || m.phase != serving || w.isHeld(ruling) {
		return ""
	}
	held, total := w.heldFor(m, cn, by)
	demand := len(cn.Status.IPAM.Used) + w.without(m, cn, ipalloc.IPv4)
	target := max(2, demand+policy.MinFree, (demand*100+policy.ExpandPercent-1)/policy.ExpandPercent)
	for _, b := range held {
		if len(held) > 1 && b.used == 0 && !b.pinned && total-b.open >= target {
			return b.name
		}
	}
	return ""
}

// heldFor are a node's blocks in service, with how many of their addresses pods could get.
// Those that another node, by, could not claim are pinned.
func (w *World) heldFor(m *machine, cn *ciliumv2.CiliumNode, by string) (held []heldBlock, open int) {
	for _, name := range w.api.Keys(KindBlock) {
		obj := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if obj.Spec.NodeName != m.name || phaseOf(obj) != "" || obj.DeletionTimestamp != nil || w.asked(obj) {
			continue
		}
		b := heldBlock{name: name, cidr: netip.MustParsePrefix(obj.Spec.CIDR)}
		b.count(m, cn)
		open += b.open
		if pool, ok := w.api.Get(KindPool, obj.Spec.PoolName).(*v1alpha1.PodIPPool); !ok || pool.Spec.Paused || !w.selects(pool, by) || !w.reusable(pool, b.cidr) {
			b.pinned = true
		}
		held = append(held, b)
	}
	return held, open
}

// reusable says that a block could be claimed again if it came free.
func (w *World) reusable(pool *v1alpha1.PodIPPool, cidr netip.Prefix) bool {
	cidrs, bits := ranges(pool, cidr.Addr().Is4())
	return bits == cidr.Bits() && slices.ContainsFunc(cidrs, func(c v1alpha1.PoolCIDR) bool {
		return allocates(c) && netip.MustParsePrefix(c.CIDR).Contains(cidr.Addr())
	})
}

// enableNewPod is for a slot without a pod, unless pods get there by the scheduler.
func (w *World) enableNewPod(m *machine, slot string) {
	if w.api.Get(KindNode, m.name) == nil || w.sched.binds(slot) {
		return
	}
	w.can(PodNew, m.name, slot)
	for _, asks := range w.asks() {
		w.can(PodNew, m.name, slot+"="+asks)
	}
}
