package world

import (
	"fmt"
	"net/netip"
	"slices"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// leaving reports whether an address with this release entry can no longer go to a pod.
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
	switch expected, recall := w.needsOf(w.writer, now.Spec.NodeName, ipalloc.FamilyOf(cidr.Addr())); {
	case v.Old == nil && expected > 0:
		w.Counts.Did["claim for waiting pods"]++
	case phaseOf(now) == v1alpha1.BlockDraining && phaseOf(v.Old.(*v1alpha1.PodIPBlock)) == "" && slices.Contains(recall, cidr):
		w.Counts.Did["recall"]++
		if slices.ContainsFunc(w.machines, func(m *machine) bool { return w.lacksFirstBlock(m, ipalloc.FamilyOf(cidr.Addr())) }) {
			w.Counts.Did["recall for a first block"]++
		}
	}
}

// needsOf returns how many addresses of a family an operator has assigned to a node for waiting
// pods, and which blocks of any family the node should return.
func (w *World) needsOf(o *Operator, node string, f ipalloc.Family) (expected int, recall []netip.Prefix) {
	if w.sched == nil {
		return 0, nil
	}
	return o.parts.Node.Unscheduled.Needs(node, f, 0)
}

// holdScheduledRest checks at rest that each Node offers what it has, that no pod waits for an
// address that a node could get, and that no node waits for a first block that another one does
// not need.
func (w *World) holdScheduledRest(when string) {
	if w.sched == nil {
		return
	}
	for _, m := range w.machines {
		for _, f := range w.families() {
			w.holdOffer(when, m, f)
		}
		w.holdFirstBlocks(when, m)
	}
	for _, slot := range w.sched.slots {
		if pod := w.sched.pod(slot); pod != nil && pod.Spec.NodeName == "" {
			w.holdWaiting(when, pod)
		}
	}
}

// holdOffer checks at rest that a Node offers no more addresses of a family than pods could
// have, and all of them except two, which its agent may still take.
func (w *World) holdOffer(when string, m *machine, f ipalloc.Family) {
	const agents = 2
	node, ok := w.api.Get(KindNode, m.name).(*corev1.Node)
	if !ok || m.phase != serving {
		return
	}
	u, least := w.addressUse(m, f), w.inService(m, f)
	held := 0 // by pods that request
	for _, slot := range w.slots {
		if pod := m.podObject(slot); pod != nil && requests(pod) && m.endpoints[slot] != nil {
			held++
		}
	}
	switch offer := offerOf(node, f); {
	case offer > max(u.free+held, held):
		w.violate(12, "%s: Node %s offers %d %s addresses; its pods have %d, and %d are free", when, m.name, offer, f, held, u.free)
	case offer < least-agents-u.plain:
		w.violate(9, "%s: Node %s offers %d of %d %s addresses in service", when, m.name, offer, least, f)
	}
}

// inService counts the published addresses of a family in a node's blocks in service that pods
// may have, without the agent's own.
func (w *World) inService(m *machine, f ipalloc.Family) int {
	cn, _ := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	n := 0
	for key, entry := range w.poolOf(cn) {
		addr, err := netip.ParseAddr(key)
		if err != nil || ipalloc.FamilyOf(addr) != f || entry.Owner != "" || leaving(cn.Status.IPAM.ReleaseIPs[key]) || m.router[agentFamily(f)] == addr || w.reserved(addr) {
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
		from := map[ipalloc.Family]string{}
		lacking := w.lacking(node)
		for _, f := range lacking {
			if got := w.couldGet(m.name, f); got != "" {
				from[f] = got
			}
		}
		if len(lacking) > 0 && len(from) == len(lacking) {
			w.violate(9, "%s: pod %s is pending, and node %s could get %v", when, keyOf(pod), m.name, from)
		}
	}
}

// couldGet returns a block of a family that a node could get: a free one, or an idle one of
// another node; "": there is none.
func (w *World) couldGet(node string, f ipalloc.Family) string {
	if n := w.freeBlocks(node, f == ipalloc.IPv4, crd.DefaultCiliumPool); n > 0 && w.blocksOf(node, f) < w.cfg.Settings.Defaults.Policy.MaxBlocks {
		return fmt.Sprintf("one of %d free blocks", n)
	}
	for _, other := range w.machines {
		if block := w.spareBlock(other, node, f); block != "" {
			return fmt.Sprintf("block %s of node %s, which is idle", block, other.name)
		}
	}
	return ""
}

// holdFirstBlocks checks that other nodes could not spare a block of each family of which a
// node has none. Its agent needs a block of each to start, so one of them alone does not help.
func (w *World) holdFirstBlocks(when string, m *machine) {
	lacking, from := 0, map[ipalloc.Family]string{}
	for _, f := range w.families() {
		if !w.lacksFirstBlock(m, f) {
			continue
		}
		lacking++
		for _, other := range w.machines {
			if block := w.spareBlock(other, m.name, f); block != "" {
				from[f] = fmt.Sprintf("block %s of node %s", block, other.name)
			}
		}
	}
	if lacking > 0 && len(from) == lacking {
		w.violate(9, "%s: node %s cannot start for lack of a first block, and could get %v, which is idle", when, m.name, from)
	}
}

// lacksFirstBlock reports whether a Node has no block of a family, so that its agent cannot
// start.
func (w *World) lacksFirstBlock(m *machine, f ipalloc.Family) bool {
	cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	if !ok || w.api.Get(KindNode, m.name) == nil || m.phase == serving || w.blocksOf(m.name, f) > 0 {
		return false
	}
	for key := range w.poolOf(cn) {
		if addr, err := netip.ParseAddr(key); err == nil && ipalloc.FamilyOf(addr) == f {
			return false
		}
	}
	return true
}

func (w *World) blocksOf(node string, f ipalloc.Family) int {
	n := 0
	for _, name := range w.api.Keys(KindBlock) {
		b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if b.Spec.NodeName == node && ipalloc.FamilyOf(netip.MustParsePrefix(b.Spec.CIDR).Addr()) == f {
			n++
		}
	}
	return n
}

// spareBlock returns an unused block of a family that a node does not need for its pods and its
// reserve, of a pool from which another node may claim; "": there is none.
func (w *World) spareBlock(m *machine, by string, f ipalloc.Family) string {
	cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	policy, ruling := w.policy(m.name, f == ipalloc.IPv4)
	if !ok || m.name == by || m.phase != serving || w.isHeld(ruling) {
		return ""
	}
	held, total := w.heldFor(m, cn, by, f)
	demand := reported(cn, f) + w.without(m, cn, f) + w.awaited(m)
	target := max(2, demand+policy.MinFree, (demand*100+policy.ExpandPercent-1)/policy.ExpandPercent)
	for _, b := range held {
		if len(held) > 1 && b.used == 0 && !b.pinned && total-b.open >= target {
			return b.name
		}
	}
	return ""
}

// awaited returns how many pods may keep a node's blocks from being idle although none of them
// is bound: at rest, in dual stack, they wait for an address of one family, and the operator
// keeps room for them in the other.
func (w *World) awaited(m *machine) int {
	node, ok := w.api.Get(KindNode, m.name).(*corev1.Node)
	if w.sched == nil || !ok || len(w.cfg.Families) < 2 || len(w.lacking(node)) != 1 {
		return 0
	}
	n := 0
	for _, slot := range w.sched.slots {
		if pod := w.sched.pod(slot); pod != nil && pod.Spec.NodeName == "" && suits(pod, node) {
			n++
		}
	}
	return n
}

// heldFor returns a node's blocks of a family in service, with how many of their addresses pods
// could get. Blocks that the node named by could not claim are pinned.
func (w *World) heldFor(m *machine, cn *ciliumv2.CiliumNode, by string, f ipalloc.Family) (held []heldBlock, open int) {
	for _, name := range w.api.Keys(KindBlock) {
		obj := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if obj.Spec.NodeName != m.name || phaseOf(obj) != "" || obj.DeletionTimestamp != nil || w.asked(obj) {
			continue
		}
		b := heldBlock{name: name, cidr: netip.MustParsePrefix(obj.Spec.CIDR)}
		if ipalloc.FamilyOf(b.cidr.Addr()) != f {
			continue
		}
		b.count(m, cn)
		open += b.open
		if pool, ok := w.api.Get(KindPool, obj.Spec.PoolName).(*v1alpha1.PodIPPool); !ok || pool.Spec.Paused || !w.selects(pool, by) || !w.reusable(pool, b.cidr) {
			b.pinned = true
		}
		held = append(held, b)
	}
	return held, open
}

// reusable reports whether a block could be claimed again if it were free.
func (w *World) reusable(pool *v1alpha1.PodIPPool, cidr netip.Prefix) bool {
	cidrs, bits := ranges(pool, cidr.Addr().Is4())
	return bits == cidr.Bits() && slices.ContainsFunc(cidrs, func(c v1alpha1.PoolCIDR) bool {
		return allocates(c) && netip.MustParsePrefix(c.CIDR).Contains(cidr.Addr())
	})
}

// enableNewPod enables a pod for an empty slot, unless the scheduler fills it.
func (w *World) enableNewPod(m *machine, slot string) {
	if w.api.Get(KindNode, m.name) == nil || w.sched.binds(slot) {
		return
	}
	w.can(PodNew, m.name, slot)
	for _, asks := range w.asks() {
		w.can(PodNew, m.name, slot+"="+asks)
	}
}
