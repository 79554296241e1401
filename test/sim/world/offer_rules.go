package world

import (
	"fmt"
	"slices"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// offerRules judge the Nodes' offers to the scheduler, and its bindings.
type offerRules struct{ *World }

// leaving reports whether an address with this release entry can no longer go to a pod.
func leaving(entry ipamtypes.IPReleaseStatus) bool {
	switch entry {
	case "marked-for-release", "ready-for-release", "released":
		return true
	}
	return false
}

// checkScheduledRest checks at rest that each Node offers its addresses, that no pod waits for an
// address that a node could get, and that no node waits for a first block that another one does not
// need.
func (r *offerRules) checkScheduledRest(when string) {
	if r.sched == nil {
		return
	}
	for _, m := range r.machines {
		for _, f := range r.families() {
			for _, pool := range r.sched.pools {
				r.checkOffer(when, m, f, pool)
			}
		}
		r.checkFirstBlocks(when, m)
	}
	for _, slot := range r.sched.slots {
		if pod := r.sched.pod(slot); pod != nil && pod.Spec.NodeName == "" {
			r.checkWaiting(when, pod)
		}
	}
}

// checkOffer checks at rest that a Node offers no more addresses of a family and a Cilium pool than
// pods could have, and all of them except two, which its agent may still take.
func (r *offerRules) checkOffer(when string, m *machine, f ipalloc.Family, ciliumPool string) {
	const agents = 2
	node, ok := r.api.Get(KindNode, m.name).(*corev1.Node)
	if !ok || m.phase != serving {
		return
	}
	u, least := r.addressUse(m, f, ciliumPool), r.inService(m, f, ciliumPool)
	held := 0 // by pods that request
	for _, slot := range r.workload.slots {
		if pod := m.kubelet.podObject(slot); pod != nil && requests(pod, ciliumPool) && m.endpoints[slot] != nil {
			held++
		}
	}
	switch offer := offerOf(node, f, ciliumPool); {
	case offer > max(u.free+held, held):
		r.violate(12, "%s: Node %s offers %d %s addresses of pool %s; its pods have %d, and %d are free", when, m.name, offer, f, ciliumPool, held, u.free)
	case offer < least-agents-u.plain:
		r.violate(9, "%s: Node %s offers %d of %d %s addresses of pool %s in service", when, m.name, offer, least, f, ciliumPool)
	}
}

// inService counts the published addresses of a family in a node's blocks in service that pods
// may have, without the agent's own.
func (r *offerRules) inService(m *machine, f ipalloc.Family, ciliumPool string) int {
	cn, _ := r.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	n := 0
	for addr, entry := range addresses(r.poolOf(cn, ciliumPool)) {
		if ipalloc.FamilyOf(addr) != f || entry.Owner != "" || r.isClosed(cn, addr) || leaving(cn.Status.IPAM.ReleaseIPs[addr.String()]) || m.router[agentFamily(f)] == addr || r.reserved(addr) {
			continue
		}
		if b := r.blockWith(m.name, addr); b != nil && phaseOf(b) == "" && !r.space.asked(b) && !isEdge(cidrOf(b), addr) {
			n++
		}
	}
	return n
}

// checkWaiting checks that a pod that is pending at rest could not be bound.
func (r *offerRules) checkWaiting(when string, pod *corev1.Pod) {
	for _, m := range r.machines {
		node, ok := r.api.Get(KindNode, m.name).(*corev1.Node)
		if !ok || !suits(pod, node) || m.phase != serving {
			continue
		}
		from := map[ipalloc.Family]string{}
		lacking := r.lacking(node, requestedBy(pod))
		for _, f := range lacking {
			if got := r.couldGet(m.name, f, requestedBy(pod)); got != "" {
				from[f] = got
			}
		}
		if len(lacking) > 0 && len(from) == len(lacking) {
			r.violate(9, "%s: pod %s is pending, and node %s could get %v", when, keyOf(pod), m.name, from)
		}
	}
}

// couldGet returns a block of a family that a node could get: a free one, or an idle one of
// another node; "": there is none.
func (r *offerRules) couldGet(node string, f ipalloc.Family, ciliumPool string) string {
	if n := r.space.freeBlocks(node, f == ipalloc.IPv4, ciliumPool); n > 0 && r.space.blocksOf(node, f) < r.cfg.Settings.Defaults.Policy.MaxBlocks {
		return fmt.Sprintf("one of %d free blocks", n)
	}
	for _, other := range r.machines {
		if block := r.spareBlock(other, node, f); block != "" {
			return fmt.Sprintf("block %s of node %s, which is idle", block, other.name)
		}
	}
	return ""
}

// checkFirstBlocks checks that other nodes could not spare a block of each family of which a
// node has none. Its agent needs a block of each to start, so one of them alone does not help.
func (r *offerRules) checkFirstBlocks(when string, m *machine) {
	lacking, from := 0, map[ipalloc.Family]string{}
	for _, f := range r.families() {
		if !r.lacksFirstBlock(m, f) {
			continue
		}
		lacking++
		for _, other := range r.machines {
			if block := r.spareBlock(other, m.name, f); block != "" {
				from[f] = fmt.Sprintf("block %s of node %s", block, other.name)
			}
		}
	}
	if lacking > 0 && len(from) == lacking {
		r.violate(9, "%s: node %s cannot start for lack of a first block, and could get %v, which is idle", when, m.name, from)
	}
}

// lacksFirstBlock reports whether a Node has no block of a family, so that its agent cannot
// start.
func (r *offerRules) lacksFirstBlock(m *machine, f ipalloc.Family) bool {
	cn, ok := r.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	if !ok || r.api.Get(KindNode, m.name) == nil || m.phase == serving || r.space.blocksOf(m.name, f) > 0 {
		return false
	}
	for addr := range addresses(r.poolOf(cn)) {
		if ipalloc.FamilyOf(addr) == f {
			return false
		}
	}
	return true
}

// spareBlock returns an unused block of a family that a node does not need for its pods and its
// reserve, of a pool from which another node may claim; "": there is none. Of whole blocks an agent
// returns itself what it can spare.
func (r *offerRules) spareBlock(m *machine, by string, f ipalloc.Family) string {
	cn, ok := r.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	policy, ruling := r.space.policy(m.name, f == ipalloc.IPv4)
	if !ok || r.multiPool() || m.name == by || m.phase != serving || r.isHeld(ruling) {
		return ""
	}
	held, total := r.heldFor(m, cn, by, f)
	demand := reported(cn, f) + r.space.without(m, cn, f) + r.awaited(m)
	target := max(2, demand+policy.MinFree, (demand*100+policy.ExpandPercent-1)/policy.ExpandPercent)
	for _, b := range held {
		if len(held) > 1 && b.used == 0 && !b.pinned && total-b.open >= target {
			return b.name
		}
	}
	return ""
}

// awaited returns the number of unbound pods that may keep a node's blocks from being idle: at
// rest, in dual stack, they wait for an address of one family, and the operator keeps room for them
// in the other.
func (r *offerRules) awaited(m *machine) int {
	node, ok := r.api.Get(KindNode, m.name).(*corev1.Node)
	if r.sched == nil || !ok || len(r.cfg.Families) < 2 || len(r.lacking(node, crd.DefaultCiliumPool)) != 1 {
		return 0
	}
	n := 0
	for _, slot := range r.sched.slots {
		if pod := r.sched.pod(slot); pod != nil && pod.Spec.NodeName == "" && suits(pod, node) {
			n++
		}
	}
	return n
}

// heldFor returns a node's blocks of a family in service, and the number of their addresses for
// pods. Blocks that the node named by could not claim are pinned.
func (r *offerRules) heldFor(m *machine, cn *ciliumv2.CiliumNode, by string, f ipalloc.Family) (held []heldBlock, open int) {
	for _, obj := range r.Blocks() {
		if obj.Spec.NodeName != m.name || phaseOf(obj) != "" || obj.DeletionTimestamp != nil || r.space.asked(obj) {
			continue
		}
		b := heldBlock{name: obj.Name, cidr: cidrOf(obj)}
		if ipalloc.FamilyOf(b.cidr.Addr()) != f {
			continue
		}
		b.count(m, cn)
		open += b.open
		if pool, ok := r.api.Get(KindPool, obj.Spec.PoolName).(*v1alpha1.PodIPPool); !ok || isPaused(pool) || !r.selects(pool, by) || !r.space.reusable(pool, b.cidr) || r.isPinned(b.name, m.name) {
			b.pinned = true
		}
		held = append(held, b)
	}
	return held, open
}

// lacking returns the families of which a Node offers no address of a Cilium pool for another pod.
func (r *offerRules) lacking(node *corev1.Node, ciliumPool string) []ipalloc.Family {
	return slices.DeleteFunc(r.families(), func(f ipalloc.Family) bool {
		return offerOf(node, f, ciliumPool) > r.requestsOn(node.Name, ciliumPool)
	})
}

// requestsOn returns the number of addresses of each family that the pods bound to a node request
// of a Cilium pool.
func (r *offerRules) requestsOn(node, ciliumPool string) int {
	n := 0
	for _, pod := range list[corev1.Pod](r.api, KindPod) {
		if pod.Spec.NodeName == node && !finished(pod) && requests(pod, ciliumPool) {
			n++
		}
	}
	return n
}

// checkBind checks a pod that has just been bound: an address is left for it, and it was not
// pending for long without faults.
func (r *offerRules) checkBind(pod *corev1.Pod) {
	s, m := r.sched, r.machine(pod.Spec.NodeName)
	if from := s.faultless; r.cfg.Maintenance == nil && !from.IsZero() {
		if pod.CreationTimestamp.After(from) {
			from = pod.CreationTimestamp.Time
		}
		if took := r.clock.now.Sub(from); took > boundWithin {
			r.violate(9, "pod %s was bound %s after all faults had ended", keyOf(pod), took)
		}
	}
	if s.nodes[m.name] != r.api.Get(KindNode, m.name) {
		return
	}
	// Between the binding of a pod that requests no address and the lower offer, one pod too
	// many may be bound (docs/scheduling.md).
	for _, f := range r.families() {
		if u := r.addressUse(m, f, requestedBy(pod)); u.waiting-u.plain > u.free {
			r.violate(12, "pod %s was bound to node %s, where %d pods have no %s address yet and %d are left", keyOf(pod), m.name, u.waiting, f, u.free)
		}
	}
}

func (r *offerRules) addressUse(m *machine, f ipalloc.Family, ciliumPool string) addressUse {
	var u addressUse
	u.free = r.unused(m, f, ciliumPool)
	if !m.router[agentFamily(f)].IsValid() && ciliumPool == crd.DefaultCiliumPool {
		u.free--
	}
	for _, slot := range r.workload.slots {
		pod := m.kubelet.podObject(slot)
		if pod == nil || finished(pod) || pod.DeletionTimestamp != nil && m.endpoints[slot] == nil || requestedBy(pod) != ciliumPool {
			continue
		}
		if m.endpoints[slot] == nil && r.workload.dropped[string(pod.UID)] == nil {
			u.waiting++
		}
		if !requests(pod, ciliumPool) {
			u.plain++
		}
	}
	return u
}

// unused counts the published addresses of a family and a Cilium pool that neither leave nor are
// held. A whole block that its agent has returned counts until it has cooled down: the node can
// have it back, unless users want it to leave.
func (r *offerRules) unused(m *machine, f ipalloc.Family, ciliumPool string) int {
	cn := r.CiliumNode(m.name)
	if cn == nil {
		return 0
	}
	n, pool := 0, r.poolOf(cn, ciliumPool)
	for _, b := range r.Blocks() {
		if r.whole() && b.Spec.NodeName == m.name && r.ciliumPoolOf(b) == ciliumPool && phaseOf(b) != v1alpha1.BlockDraining && !r.space.isAsked(b) {
			addAll(pool, cidrOf(b))
		}
	}
	for addr, entry := range addresses(pool) {
		if ipalloc.FamilyOf(addr) == f && entry.Owner == "" && !m.hasAddress(addr) && !r.isClosed(cn, addr) && !leaving(cn.Status.IPAM.ReleaseIPs[addr.String()]) {
			n++
		}
	}
	return n
}
