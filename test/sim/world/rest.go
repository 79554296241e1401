package world

import (
	"net/netip"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// holdRest checks what must hold at rest: every pod has its addresses as far as there are any,
// nothing is pending, and no node holds a block that it does not need.
func (w *World) holdRest(when string) {
	for _, m := range w.machines {
		cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
		switch {
		case !ok && (!w.fixed() || m.phase == serving): // in kubernetes mode the agent makes it then
			w.violate(9, "%s: node %s has no CiliumNode", when, m.name)
			continue
		case w.fixed():
			w.holdFixedRest(when, m)
			continue
		case m.mode != adopt.None && m.phase != down:
			w.holdBack(when, m)
			continue
		}
		for key, state := range cn.Status.IPAM.ReleaseIPs {
			if w.foreign(m.name, key) || state == "released" && w.mayRetire(m, key) {
				continue // the operator touches neither it nor its release entry; or the agent keeps it until it restarts
			}
			w.violate(9, "%s: %s of node %s is still %s", when, key, m.name, state)
		}
		w.holdPods(when, m, cn)
		if w.whole() {
			w.holdWholeRest(when, m, cn)
			continue
		}
		w.holdBlocks(when, m, cn)
	}
	w.holdFamiliesRest(when)
	w.holdCiliumPoolsRest(when)
	w.holdScheduledRest(when)
}

// holdAssignedRest checks at rest that a CIDR assigned to an agent is a block of its node. A
// block that was removed by force is recreated if a pool could have cut it, and is foreign from
// then on otherwise (docs/reliability.md).
func (w *World) holdAssignedRest(when string, m *machine, l listed) {
	b, ok := w.api.Get(KindBlock, crd.BlockName(l.cidr)).(*v1alpha1.PodIPBlock)
	if ok && b.Spec.NodeName != m.name || !ok && w.onAnyGrid(m.name, l) {
		w.violate(9, "%s: node %s is assigned %s, which is no block of it", when, m.name, l.cidr)
	}
}

// onAnyGrid reports whether a pool that is not being deleted could have cut a CIDR for a node.
func (w *World) onAnyGrid(node string, l listed) bool {
	c := l.cidr
	for _, name := range w.api.Keys(KindPool) {
		pool := w.api.Get(KindPool, name).(*v1alpha1.PodIPPool)
		cidrs, bits := ranges(pool, c.Addr().Is4())
		if pool.DeletionTimestamp == nil && w.selects(pool, node) && crd.CiliumPoolOf(pool) == l.pool && bits == c.Bits() && slices.ContainsFunc(cidrs, func(r v1alpha1.PoolCIDR) bool {
			return netip.MustParsePrefix(r.CIDR).Contains(c.Addr())
		}) {
			return true
		}
	}
	return false
}

// foreign reports whether a pool entry lies in no block of the node.
func (w *World) foreign(node, key string) bool {
	cn, _ := w.api.Get(KindCiliumNode, node).(*ciliumv2.CiliumNode)
	addr, err := netip.ParseAddr(key)
	_, published := w.poolOf(cn)[key]
	return err == nil && published && !w.inBlockOf(node, addr)
}

func (w *World) inBlockOf(node string, addr netip.Addr) bool {
	for _, name := range w.api.Keys(KindBlock) {
		b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if cidr, err := netip.ParsePrefix(b.Spec.CIDR); err == nil && b.Spec.NodeName == node && cidr.Contains(addr) {
			return true
		}
	}
	return false
}

func (w *World) holdPods(when string, m *machine, cn *ciliumv2.CiliumNode) {
	pool := w.poolOf(cn)
	for _, slot := range w.slots {
		pod, e := m.podObject(slot), m.endpoints[slot]
		if pod != nil && e == nil && !finished(pod) && w.roomFor(m, pod) > 0 {
			w.violate(9, "%s: pod %s has no address and %d blocks are free", when, keyOf(pod), w.roomFor(m, pod))
		}
		if e == nil || e.forfeited {
			continue
		}
		for _, addr := range e.addrs() {
			if _, published := pool[addr.String()]; !published && w.excused[addr] != (excuse{node: m.name}) {
				w.violate(2, "%s: %s, which pod %s has, is not in the pool of node %s", when, addr, e.owner(), m.name)
			}
		}
	}
	if m.phase != serving && m.roomToStart() > 0 {
		w.violate(9, "%s: the agent of %s has not come up", when, m.name)
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

func (w *World) holdBlocks(when string, m *machine, cn *ciliumv2.CiliumNode) {
	var held []heldBlock
	for _, name := range w.api.Keys(KindBlock) {
		obj := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if obj.Spec.NodeName != m.name {
			continue
		}
		b := heldBlock{name: name, cidr: netip.MustParsePrefix(obj.Spec.CIDR)}
		b.count(m, cn)
		leaving := meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.BlockDraining) || obj.DeletionTimestamp != nil
		if wrong := w.wrongAtRest(obj, &b, leaving); wrong != "" {
			w.violate(9, "%s: block %s of node %s %s", when, name, m.name, wrong)
		} else if !leaving && !w.asked(obj) {
			held = append(held, b)
		}
	}
	w.holdReclaim(when, m, cn, held)
	w.holdWithheldRest(when, m, cn, held)
}

// wrongAtRest returns why a block may not be in its state at rest; "": it may.
func (w *World) wrongAtRest(obj *v1alpha1.PodIPBlock, b *heldBlock, leaving bool) string {
	hasRoom := w.room(obj.Spec.NodeName) > 0
	switch {
	case meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.BlockCoolingDown):
		return "still cools down"
	case leaving && hasRoom:
		return w.wrongWhileLeaving(obj, b)
	case leaving:
		return ""
	case !w.lists(obj) && w.overlapped(b.name, b.cidr) && b.used == 0 && !b.pinned:
		return "stays, though it overlaps another and was not there first"
	case hasRoom && w.asked(obj) && !w.isHeld(obj.Spec.PoolName) && !w.othersMove(obj):
		return "has to leave, and has not begun"
	}
	return ""
}

func (w *World) wrongWhileLeaving(obj *v1alpha1.PodIPBlock, b *heldBlock) string {
	switch {
	case b.used == 0 && !b.pinned:
		return "still leaves, and nothing uses it"
	case b.unretired != "" && w.isAsked(obj):
		return "still leaves, and its agent would take up " + b.unretired + " again"
	}
	return ""
}

func (w *World) overlapped(name string, cidr netip.Prefix) bool {
	for _, other := range w.api.Keys(KindBlock) {
		if p, err := netip.ParsePrefix(w.api.Get(KindBlock, other).(*v1alpha1.PodIPBlock).Spec.CIDR); err == nil && other != name && p.Overlaps(cidr) {
			return true
		}
	}
	return false
}

func (b *heldBlock) count(m *machine, cn *ciliumv2.CiliumNode) {
	for key := range cn.Spec.IPAM.Pool {
		if addr, err := netip.ParseAddr(key); err == nil && b.cidr.Contains(addr) {
			if !m.w.reserved(addr) && !m.w.withheld(addr) && !isEdge(b.cidr, addr) {
				b.open++
			}
			if _, used := cn.Status.IPAM.Used[key]; used {
				b.used++
			}
		}
	}
	for _, slot := range m.w.slots {
		if pod := m.podObject(slot); pod != nil && statusIn(pod, b.cidr) {
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

// holdReclaim checks that reclaim has left no block that it should have taken.
func (w *World) holdReclaim(when string, m *machine, cn *ciliumv2.CiliumNode, held []heldBlock) {
	if m.phase != serving {
		return
	}
	for _, f := range ipalloc.Families() {
		if !m.runs(f) {
			continue // what the node has stays until it is drained
		}
		family := f == ipalloc.IPv4
		policy, ruling := w.policy(m.name, family)
		if w.isHeld(ruling) {
			continue
		}
		demand, total, blocks := reported(cn, f)+w.without(m, cn, f)+w.awaited(m), 0, 0
		for _, b := range held {
			if b.cidr.Addr().Is4() == family {
				total, blocks = total+b.open, blocks+1
			}
		}
		target := max(2, demand+policy.MinFree, (demand*100+policy.ExpandPercent-1)/policy.ExpandPercent)
		for _, b := range held {
			without := total - b.open
			if b.cidr.Addr().Is4() == family && !b.pinned && blocks > 1 && without >= target && demand*100 <= policy.ReclaimPercent*without {
				w.violate(9, "%s: node %s still has block %s: %d in use, %d without it", when, m.name, b.name, demand, without)
			}
		}
	}
}

// reported returns how many addresses of a family an agent reports.
func reported(cn *ciliumv2.CiliumNode, f ipalloc.Family) int {
	n := 0
	for key := range cn.Status.IPAM.Used {
		if addr, err := netip.ParseAddr(key); err == nil && ipalloc.FamilyOf(addr) == f {
			n++
		}
	}
	return n
}

// asked reports whether a block has to leave, whatever its use.
func (w *World) asked(b *v1alpha1.PodIPBlock) bool {
	obj, ok := w.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool)
	if !ok {
		return true
	}
	pool, err := crd.PoolFrom(obj, w.cfg.Settings.Defaults)
	return err != nil || pool.Deleting || pool.Drains(netip.MustParsePrefix(b.Spec.CIDR)) || w.mustMove(b, pool)
}

// without returns how many pods of the node have no address of a family, according to the
// agent's report.
func (w *World) without(m *machine, cn *ciliumv2.CiliumNode, f ipalloc.Family) int {
	owners := map[string]bool{}
	for key, ip := range cn.Status.IPAM.Used {
		if addr, err := netip.ParseAddr(key); err == nil && ipalloc.FamilyOf(addr) == f {
			owners[strings.TrimSuffix(ip.Owner, " [restored]")] = true
		}
	}
	n := 0
	for _, slot := range w.slots {
		if pod := m.podObject(slot); pod != nil && !finished(pod) && !owners[keyOf(pod)] {
			n++
		}
	}
	return n
}

// room returns how many blocks are free for a node, in the family that has fewest: without one
// of each an agent does not start, and no block is replaced.
func (w *World) room(node string) int {
	n := w.freeBlocks(node, true, crd.DefaultCiliumPool)
	if len(w.cfg.Families) > 1 && !w.ipv6Over {
		n = min(n, w.freeBlocks(node, false, crd.DefaultCiliumPool))
	}
	return n
}

// roomToStart is room of all pools that an agent waits for when it starts.
func (m *machine) roomToStart() int {
	n := m.w.room(m.name)
	if !m.w.whole() {
		return n
	}
	for pool := range m.w.cfg.Reserve {
		for _, family := range m.families {
			n = min(n, m.w.freeBlocks(m.name, familyOf(family) == ipalloc.IPv4, pool))
		}
	}
	return n
}

// freeBlocks counts the blocks that are neither held nor named by a CiliumNode, in a family's
// open ranges of the pools that select a node, for a Cilium pool.
func (w *World) freeBlocks(node string, v4 bool, ciliumPool string) int {
	n := 0
	for _, name := range w.api.Keys(KindPool) {
		pool := w.api.Get(KindPool, name).(*v1alpha1.PodIPPool)
		if pool.DeletionTimestamp != nil || pool.Spec.Paused || crd.CiliumPoolOf(pool) != ciliumPool || !w.selects(pool, node) {
			continue
		}
		n += w.freeOf(pool, v4)
	}
	return n
}

// enoughFree is where counting free blocks stops.
const enoughFree = 16

// freeOf returns how many of them one pool has, at most enoughFree.
func (w *World) freeOf(pool *v1alpha1.PodIPPool, v4 bool) int {
	n := 0
	cidrs, bits := ranges(pool, v4)
	for _, c := range cidrs {
		rng := netip.MustParsePrefix(c.CIDR)
		for i := 0; allocates(c) && i < 1<<(bits-rng.Bits()) && n < enoughFree; i++ {
			if w.isFree(nth(rng, bits, i), &pool.Spec) {
				n++
			}
		}
	}
	return n
}

// ranges returns a pool's ranges of a family, and the length of their blocks.
func ranges(pool *v1alpha1.PodIPPool, v4 bool) ([]v1alpha1.PoolCIDR, int) {
	switch {
	case v4 && pool.Spec.IPv4 != nil:
		return pool.Spec.IPv4.CIDRs, int(pool.Spec.IPv4.BlockSize)
	case !v4 && pool.Spec.IPv6 != nil:
		return pool.Spec.IPv6.CIDRs, int(pool.Spec.IPv6.BlockSize)
	}
	return nil, 0
}

func (w *World) reserved(addr netip.Addr) bool {
	for _, name := range w.api.Keys(KindPool) {
		for _, r := range w.api.Get(KindPool, name).(*v1alpha1.PodIPPool).Spec.Reserved {
			if netip.MustParsePrefix(r.CIDR).Contains(addr) {
				return true
			}
		}
	}
	return false
}

func (w *World) isFree(cidr netip.Prefix, pool *v1alpha1.PodIPPoolSpec) bool {
	for _, name := range w.api.Keys(KindBlock) {
		if b, err := netip.ParsePrefix(w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock).Spec.CIDR); err == nil && b.Overlaps(cidr) {
			return false
		}
	}
	// Agents that have whole blocks use every address.
	allOrNone := w.whole() || w.fixed() || pool.ReservedBlockPolicy != v1alpha1.PublishRemainder
	for _, r := range pool.Reserved {
		reserved := netip.MustParsePrefix(r.CIDR)
		if reserved.Overlaps(cidr) && (allOrNone || reserved.Bits() <= cidr.Bits()) {
			return false
		}
	}
	return !w.named(cidr) && !w.clusters(cidr)
}
