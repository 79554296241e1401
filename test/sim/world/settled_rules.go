package world

import (
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/dump"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// settledRules judge a world at rest.
type settledRules struct{ *World }

// checkRest checks the rules of rest: every pod has its addresses as far as there are any, no drain
// is pending, and no node holds a block that it does not need.
func (r *settledRules) checkRest(when string) {
	for _, m := range r.machines {
		cn, ok := r.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
		switch {
		case !ok && (!r.fixed() || m.phase == serving): // in kubernetes mode the agent makes it then
			r.violate(9, "%s: node %s has no CiliumNode", when, m.name)
			continue
		case r.fixed():
			r.checkFixedRest(when, m)
			continue
		case m.mode != adopt.None && m.phase != down:
			r.migration.checkBack(when, m)
			continue
		}
		for key, state := range cn.Status.IPAM.ReleaseIPs {
			if r.foreign(m.name, key) || state == "released" && r.mayRetire(m, key) {
				continue // the operator touches neither it nor its release entry; or the agent keeps it until it restarts
			}
			r.violate(9, "%s: %s of node %s is still %s", when, key, m.name, state)
		}
		r.checkPods(when, m, cn)
		if r.delegated() {
			r.checkReportRest(when, m, cn)
			r.checkChoicesRest(when, m)
		}
		if r.multiPool() {
			r.checkWholeRest(when, m, cn)
			continue
		}
		r.checkBlocks(when, m, cn)
	}
	r.checkPins(when)
	r.checkPublished(when)
	r.checkFamiliesRest(when)
	r.checkCiliumPoolsRest(when)
	r.offers.checkScheduledRest(when)
	r.checkShared(when)
}

// checkShared checks at rest that the values that reconciles share are as they are read anew: no reconcile has changed
// one.
func (r *settledRules) checkShared(when string) {
	check := func(shared, read any) {
		if dump.ForHash(shared) != dump.ForHash(read) {
			r.violate(6, "%s: a shared value was changed from %+v to %+v", when, read, shared)
		}
	}
	for _, o := range r.operators {
		if !o.leads {
			continue
		}
		cluster := &o.parts.Node.Cluster
		for _, name := range r.api.Keys(r.carrier()) {
			obj := r.api.Get(r.carrier(), name)
			if view := cluster.Ledger.CiliumNode(name); view != nil && view.ResourceVersion == obj.GetResourceVersion() {
				check(view, r.cfg.Settings.Mode.View(obj))
			}
		}
		pools := state.NewPools(cluster.Defaults, state.NewLedger())
		for _, obj := range r.pools() {
			pools.Set(obj)
		}
		for _, name := range pools.Names() {
			shared, read := *cluster.Pools.Get(name), *pools.Get(name)
			shared.Maintenance.Windows, read.Maintenance.Windows = nil, nil // they remember their last answer
			check(shared, read)
		}
	}
}

// checkPublished checks at rest that every block in service says whether its CiliumNode has it.
func (r *settledRules) checkPublished(when string) {
	for _, obj := range r.Blocks() {
		if b, err := crd.BlockFrom(obj); err == nil && b.Phase == ipalloc.InService && !b.Deleting && b.Published != r.lists(obj) {
			r.violate(9, "%s: block %s says that it is published: %t", when, obj.Name, b.Published)
		}
	}
}

// checkPins checks at rest that every pin says whether its node holds the block in service, and that a
// node that could claim its block has done so. Agents that have whole blocks return those that they
// do not need.
func (r *settledRules) checkPins(when string) {
	r.rules.stays.checkRest(when)
	for _, pin := range list[v1alpha1.PodIPPin](r.api, KindPin) {
		b, ready := r.Block(pin.Name), meta.FindStatusCondition(pin.Status.Conditions, v1alpha1.PinReady)
		held := b != nil && phaseOf(b) == "" && (b.Spec.NodeName == pin.Spec.NodeName || pinOwner(pin) != "" && crd.OwnerOfPool(b.Spec.CiliumPoolName) == pinOwner(pin))
		switch {
		case ready == nil || (ready.Status == metav1.ConditionTrue) != held:
			r.violate(9, "%s: pin %s of node %s says %+v, and is held: %t", when, pin.Name, pin.Spec.NodeName, ready, held)
		case pinOwner(pin) != "":
		case ready.Reason == v1alpha1.PinNotClaimed && r.mayClaimPins(pin.Spec.NodeName):
			r.violate(9, "%s: node %s has not claimed its pin %s", when, pin.Spec.NodeName, pin.Name)
		}
	}
}

func (r *settledRules) mayClaimPins(node string) bool {
	m := r.machine(node)
	_, ruling := r.space.policy(node, true)
	pool, ok := r.api.Get(KindPool, ruling).(*v1alpha1.PodIPPool)
	return ok && !isPaused(pool) && !r.whole() && !r.fixed() && m.phase == serving && m.mode == adopt.None && r.api.Get(KindNode, node) != nil
}

// isPinned reports whether a block is pinned to a node.
func (q *queries) isPinned(block, node string) bool {
	pin, ok := q.api.Get(KindPin, block).(*v1alpha1.PodIPPin)
	return ok && pin.Spec.NodeName == node
}

// checkAssignedRest checks at rest that a CIDR assigned to an agent is a block of its node. A
// block that was removed by force is recreated if a pool could have cut it, and is foreign from
// then on otherwise (docs/reliability.md).
func (r *settledRules) checkAssignedRest(when string, m *machine, l whole.Entry) {
	if b := r.Block(crd.BlockName(l.CIDR)); b != nil && b.Spec.NodeName != m.name || b == nil && r.onAnyGrid(m.name, l) {
		r.violate(9, "%s: node %s is assigned %s, which is no block of it", when, m.name, l.CIDR)
	}
}

func (r *settledRules) checkPods(when string, m *machine, cn *ciliumv2.CiliumNode) {
	pool := r.poolOf(cn)
	for _, slot := range r.workload.slots {
		pod, e := m.kubelet.podObject(slot), m.endpoints[slot]
		if pod != nil && e == nil && !finished(pod) && r.workload.roomFor(m, pod) > 0 {
			r.violate(9, "%s: pod %s has no address and %d blocks are free", when, keyOf(pod), r.workload.roomFor(m, pod))
		}
		if e == nil || e.forfeited {
			continue
		}
		for _, addr := range e.addrs() {
			if _, published := pool[addr.String()]; !published && r.rules.excused[addr] != (excuse{node: m.name}) {
				r.violate(2, "%s: %s, which pod %s has, is not in the pool of node %s", when, addr, e.owner(), m.name)
			}
		}
	}
	if m.phase != serving && m.roomToStart() > 0 {
		r.violate(9, "%s: the agent of %s has not come up", when, m.name)
	}
}

// heldBlock is a block of a node at rest.
type heldBlock struct {
	name   string
	cidr   netip.Prefix
	open   int // its addresses in the pool that pods may get
	used   int
	pinned bool // by the agent's own address
	// unretired is an address of the agent's own that it takes again when it restarts.
	unretired string
}

func (r *settledRules) checkBlocks(when string, m *machine, cn *ciliumv2.CiliumNode) {
	var held []heldBlock
	for _, obj := range r.Blocks() {
		if obj.Spec.NodeName != m.name || r.delegated() && r.modeRules.isPartOfListed(obj, listedIn(cn)) { // it leaves with the other one
			continue
		}
		b := heldBlock{name: obj.Name, cidr: cidrOf(obj)}
		b.count(m, cn)
		leaving := meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.BlockDraining) || obj.DeletionTimestamp != nil
		if wrong := r.wrongAtRest(obj, &b, leaving); wrong != "" {
			r.violate(9, "%s: block %s of node %s %s", when, obj.Name, m.name, wrong)
		} else if !leaving && !r.space.asked(obj) && r.ciliumPoolOf(obj) == crd.DefaultCiliumPool { // of others there is no reserve
			held = append(held, b)
		}
	}
	r.checkReclaim(when, m, cn, held)
	r.checkWithheldRest(when, m, cn, held)
}

// wrongAtRest returns why a block may not be in its state at rest; "": it may.
func (r *settledRules) wrongAtRest(obj *v1alpha1.PodIPBlock, b *heldBlock, leaving bool) string {
	hasRoom := r.space.room(obj.Spec.NodeName) > 0
	if pool := r.ciliumPoolOf(obj); pool != "" && pool != crd.DefaultCiliumPool {
		hasRoom = r.space.freeBlocks(obj.Spec.NodeName, b.cidr.Addr().Is4(), pool) > 0
	}
	switch {
	case meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.BlockCoolingDown):
		return "still cools down"
	case leaving && hasRoom:
		return r.wrongWhileLeaving(obj, b)
	case leaving:
		return ""
	case !r.lists(obj) && r.overlapped(b.name, b.cidr) && b.used == 0 && !b.pinned:
		return "stays, though it overlaps another and was not there first"
	case hasRoom && r.space.asked(obj) && !r.isHeld(obj.Spec.PoolName) && !r.space.othersMove(obj):
		return "has to leave, and has not begun"
	}
	return ""
}

func (r *settledRules) wrongWhileLeaving(obj *v1alpha1.PodIPBlock, b *heldBlock) string {
	switch {
	case b.used == 0 && !b.pinned:
		return "still leaves, and nothing uses it"
	case b.unretired != "" && r.space.isAsked(obj) && !r.space.awaitsTurn(b.cidr, obj.Spec.NodeName):
		return "still leaves, and its agent would take up " + b.unretired + " again"
	}
	return ""
}

func (b *heldBlock) count(m *machine, cn *ciliumv2.CiliumNode) {
	for addr := range addresses(m.w.poolOf(cn)) {
		if !b.cidr.Contains(addr) {
			continue
		}
		if !m.w.reserved(addr) && !m.w.space.withheld(addr) && !isEdge(b.cidr, addr) {
			b.open++
		}
		if _, used := cn.Status.IPAM.Used[addr.String()]; used {
			b.used++
		}
	}
	for _, slot := range m.w.workload.slots {
		if pod := m.kubelet.podObject(slot); pod != nil && statusIn(pod, b.cidr) {
			b.used++ // of a family that the agent does not run it reports none
		}
	}
	for _, own := range m.routers() {
		if !b.cidr.Contains(own) {
			continue
		}
		b.pinned = true
		if cn.Status.IPAM.ReleaseIPs[own.String()] != "released" {
			b.unretired = own.String()
		}
	}
}

// isEdge reports whether an address is a block's first or last, which pods do not get here. In
// an adopted block it may be in use and stay published.
func isEdge(cidr netip.Prefix, addr netip.Addr) bool {
	return cidr.Bits() < addr.BitLen()-1 && (addr == cidr.Addr() || !cidr.Contains(addr.Next()))
}

// checkReclaim checks that reclaim has left no block that it should have taken.
func (r *settledRules) checkReclaim(when string, m *machine, cn *ciliumv2.CiliumNode, held []heldBlock) {
	if m.phase != serving {
		return
	}
	for _, f := range ipalloc.Families() {
		if !m.runs(f) {
			continue // the node's blocks stay until they are drained
		}
		family := f == ipalloc.IPv4
		policy, ruling := r.space.policy(m.name, family)
		if r.isHeld(ruling) {
			continue
		}
		demand, total, blocks := reported(cn, f)+r.space.without(m, cn, f)+r.offers.awaited(m), 0, 0
		for _, b := range held {
			if b.cidr.Addr().Is4() == family {
				total, blocks = total+b.open, blocks+1
			}
		}
		target := max(2, demand+policy.MinFree, (demand*100+policy.ExpandPercent-1)/policy.ExpandPercent)
		for _, b := range held {
			without := total - b.open
			if b.cidr.Addr().Is4() == family && !b.pinned && !r.isPinned(b.name, m.name) && blocks > 1 && without >= target && demand*100 <= policy.ReclaimPercent*without {
				r.violate(9, "%s: node %s still has block %s: %d in use, %d without it", when, m.name, b.name, demand, without)
			}
		}
	}
}

// reported returns the number of addresses of a family that an agent reports.
func reported(cn *ciliumv2.CiliumNode, f ipalloc.Family) int {
	n := 0
	for addr := range addresses(cn.Status.IPAM.Used) {
		if ipalloc.FamilyOf(addr) == f {
			n++
		}
	}
	return n
}

// roomToStart is room of all pools that an agent waits for when it starts.
func (m *machine) roomToStart() int {
	n := m.w.space.room(m.name)
	if !m.w.multiPool() {
		return n
	}
	for pool := range m.w.cfg.Reserve {
		for _, family := range m.families {
			n = min(n, m.w.space.freeBlocks(m.name, familyOf(family) == ipalloc.IPv4, pool))
		}
	}
	return n
}

// mayRetire reports whether an address may stay released at rest: it is the agent's own, in a
// block that has to leave.
func (r *settledRules) mayRetire(m *machine, key string) bool {
	addr := netip.MustParseAddr(key)
	b := r.blockWith(m.name, addr)
	return b != nil && slices.Contains(m.routers(), addr) && r.space.isAsked(b)
}
