package world

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
)

// listed is a CIDR on an agent's list, for a Cilium pool.
type listed struct {
	pool string
	cidr netip.Prefix
}

// compare orders CIDRs as agents write their list.
func (l listed) compare(other listed) int {
	return cmp.Or(strings.Compare(l.pool, other.pool), l.cidr.Compare(other.cidr))
}

func (l listed) String() string { return l.cidr.String() + " of pool " + l.pool }

// listedIn returns an agent's list. A parked CIDR is listed for its own pool.
func listedIn(cn *ciliumv2.CiliumNode) []listed {
	out := entriesOf(cn)
	for i := range out {
		out[i].pool, _ = strings.CutSuffix(out[i].pool, parkedSuffix)
	}
	return out
}

// entriesOf returns an agent's list as it stands.
func entriesOf(cn *ciliumv2.CiliumNode) []listed {
	var out []listed
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		for _, p := range entry.CIDRs {
			out = append(out, listed{entry.Pool, p.Prefix})
		}
	}
	return out
}

// allocatedIn returns the CIDRs on an agent's list, of any pool.
func allocatedIn(cn *ciliumv2.CiliumNode) []netip.Prefix {
	var out []netip.Prefix
	for _, l := range listedIn(cn) {
		out = append(out, l.cidr)
	}
	return out
}

// allocatedOf returns pools.allocated with these CIDRs, in the agents' order.
func allocatedOf(list []listed) []ipamtypes.IPAMPoolAllocation {
	var out []ipamtypes.IPAMPoolAllocation
	for _, l := range slices.SortedFunc(slices.Values(list), listed.compare) {
		if len(out) == 0 || out[len(out)-1].Pool != l.pool {
			out = append(out, ipamtypes.IPAMPoolAllocation{Pool: l.pool})
		}
		last := &out[len(out)-1]
		last.CIDRs = append(last.CIDRs, iputil.PrefixFrom(l.cidr))
	}
	return out
}

// bootWhole starts an agent in multi-pool mode.
func (m *machine) bootWhole() {
	m.store, m.asked, m.phase = nil, true, waiting
	m.whole = &multipool.Pools{Reserve: m.w.cfg.Reserve, IPv6: m.runs(ipalloc.IPv6)}
	m.seen = nil
	m.waits = map[waitsFor]time.Time{}
	m.discover()
	m.read = len(m.w.api.history[KindCiliumNode])
	if cn, ok := m.w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode); ok {
		m.seesList(cn)
	}
}

// seesList processes an event of the agent's watch. If the CiliumNode is gone, the agent continues
// with its last list, and likewise with a pool that the list no longer names
// (multiPoolManager.ciliumNodeUpdated).
func (m *machine) seesList(cn *ciliumv2.CiliumNode) {
	if cn == nil {
		return
	}
	m.seen, m.asked = cn, true
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		var cidrs []netip.Prefix
		for _, p := range entry.CIDRs {
			cidrs = append(cidrs, p.Prefix)
		}
		m.whole.Sees(entry.Pool, cidrs)
	}
}

// update writes the list and the agent's requests, both in full, conditional on the version it
// has seen, and deletes the report of an agent in crd mode (multiPoolManager.updateLocalNode).
func (m *machine) update() {
	m.wrote, m.asked = m.w.clock.now, false
	m.forget(func(_ waitsFor, since time.Time) bool { return m.isTired(since) })
	if m.seen == nil {
		return
	}
	cn := m.seen.DeepCopy()
	cn.Spec.IPAM.Pools = multipool.Spec(m.whole.Update())
	before, after := entriesOf(m.seen), entriesOf(cn)
	if !slices.Equal(before, after) || !equality.Semantic.DeepEqual(cn.Spec.IPAM.Pools.Requested, m.seen.Spec.IPAM.Pools.Requested) {
		stored, err := m.w.api.Update(cn, false)
		if err != nil {
			m.asked = true
			return
		}
		cn = stored.DeepCopyObject().(*ciliumv2.CiliumNode)
	}
	if len(cn.Status.IPAM.Used) > 0 {
		cn.Status.IPAM.Used = nil
		_, err := m.w.api.Update(cn, true)
		m.asked = err != nil
	}
}

// checkWhole checks an operator's write of a list: only blocks of the node, without removals, and
// in the agents' own order.
func (r *modeRules) checkWhole(v Version) {
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	if !r.whole() || now == nil {
		return
	}
	if old == nil {
		old = &ciliumv2.CiliumNode{}
	}
	before, after := listedIn(old), listedIn(now)
	for _, l := range before {
		if !slices.Contains(after, l) {
			r.violate(2, "%s was taken off the list of node %s, whose agent may just have given an address of it to a pod", l, v.Key)
		}
	}
	back := r.listedBefore(v.Key)
	for i, l := range after {
		again := slices.Contains(back, l)
		if slices.Contains(before, l) || again && v.Old == nil && r.isForeign(v.Key, l) {
			continue
		}
		r.checkAssigned(r.machine(v.Key), l.cidr)
		r.checkOnce(v.Key, l, slices.Delete(slices.Clone(after), i, i+1))
		if !again {
			r.checkServed(v.Key, l)
		}
	}
	r.checkParked(v.Key, old, now)
	was, is := entriesOf(old), entriesOf(now)
	if sorted := listed.compare; slices.IsSortedFunc(was, sorted) && !slices.IsSortedFunc(is, sorted) {
		r.violate(3, "the list of node %s was in order, and now is %v: its agent will write it again", v.Key, is)
	}
	if !equality.Semantic.DeepEqual(old.Spec.IPAM.Pools.Requested, now.Spec.IPAM.Pools.Requested) {
		r.violate(7, "what the agent of node %s asks for was changed", v.Key)
	}
}

// listedBefore returns a CiliumNode's list before its last deletion; it is restored like that.
func (r *modeRules) listedBefore(node string) []listed {
	var last *ciliumv2.CiliumNode
	for _, v := range r.api.history[KindCiliumNode] {
		if v.Key == node && v.New == nil {
			last = v.Old.(*ciliumv2.CiliumNode)
		}
	}
	if last == nil {
		return nil
	}
	return listedIn(last)
}

// isForeign reports whether a CIDR is neither a block nor one that a pool could create.
func (r *modeRules) isForeign(node string, l listed) bool {
	return r.api.Get(KindBlock, crd.BlockName(l.cidr)) == nil && !r.onAnyGrid(node, l)
}

// checkUnknown checks that no agent can still allocate an address of a block that is deleted, or
// that another node gets. Machines without a Node are not checked.
func (r *modeRules) checkUnknown(b *v1alpha1.PodIPBlock, how string) {
	cidr := cidrOf(b)
	for _, m := range r.machines {
		node := r.api.Get(KindNode, m.name)
		if !r.whole() || m.whole == nil || node == nil || node.GetUID() != m.node || how == "claimed" && m.name == b.Spec.NodeName {
			continue
		}
		for _, has := range m.whole.CIDRs() {
			if has.Overlaps(cidr) && !r.isBeside(b, m.name, has) {
				r.violate(1, "block %s was %s, and the agent of node %s gives out addresses of %s", b.Name, how, m.name, has)
			}
		}
	}
}

// podSays reports whether a pod's status names an address of a block.
func (r *modeRules) podSays(cidr netip.Prefix) bool {
	return slices.ContainsFunc(list[corev1.Pod](r.api, KindPod), func(pod *corev1.Pod) bool { return statusIn(pod, cidr) })
}

// isLost reports whether only the statuses of a machine's pods name addresses of a block, and
// these pods have no endpoint there: the agent did not restore them, or has not assigned them
// an address again yet.
func (r *modeRules) isLost(m *machine, cidr netip.Prefix) bool {
	lost := false
	for _, slot := range r.workload.slots {
		if e := m.endpoints[slot]; e != nil {
			if slices.ContainsFunc(e.addrs(), cidr.Contains) {
				return false
			}
			continue
		}
		pod := m.kubelet.podObject(slot)
		lost = lost || pod != nil && statusIn(pod, cidr)
	}
	return lost
}

// checkWholeRest checks at rest that each block of a node is assigned or was returned, and that the
// node has its agent's requests as far as blocks are free.
func (r *settledRules) checkWholeRest(when string, m *machine, cn *ciliumv2.CiliumNode) {
	entries := listedIn(cn)
	for _, l := range entries {
		r.checkAssignedRest(when, m, l)
	}
	for _, b := range r.Blocks() {
		switch {
		case b.Spec.NodeName != m.name:
		case meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockCoolingDown):
			r.violate(9, "%s: block %s of node %s still cools down", when, b.Name, m.name)
		case r.api.Get(KindPool, b.Spec.PoolName) == nil && r.modeRules.podSays(cidrOf(b)):
			// Its Cilium pool is unknown: it leaves with the pod.
		case r.modeRules.isLost(m, cidrOf(b)):
			// It was assigned again and returned.
		case r.modeRules.isPartOfListed(b, entries):
			// It leaves with the block that it overlaps.
		case !slices.ContainsFunc(entries, func(l listed) bool { return l.cidr.String() == b.Spec.CIDR }):
			r.violate(9, "%s: block %s of node %s is neither assigned nor returned", when, b.Name, m.name)
		}
	}
	r.checkParkedRest(when, m, cn)
	for _, request := range cn.Spec.IPAM.Pools.Requested {
		for _, f := range ipalloc.Families() {
			r.checkRequestedRest(when, m, request, f)
		}
	}
}

// isPartOfListed reports whether a block overlaps another that is assigned to its node.
func (r *modeRules) isPartOfListed(b *v1alpha1.PodIPBlock, entries []listed) bool {
	cidr := cidrOf(b)
	return slices.ContainsFunc(entries, func(l listed) bool { return l.cidr.Overlaps(cidr) && r.isBeside(b, b.Spec.NodeName, l.cidr) })
}

// checkRequestedRest checks at rest that a node has the addresses of a pool and a family that
// its agent requests, as far as blocks are free. Where blocks are parked, it gets no more of
// one family than pods use while the other family has none.
func (r *settledRules) checkRequestedRest(when string, m *machine, request ipamtypes.IPAMPoolRequest, f ipalloc.Family) {
	has, needed := 0, [2]int{ipalloc.IPv4: request.Needed.IPv4Addrs, ipalloc.IPv6: request.Needed.IPv6Addrs}[f]
	for _, l := range listedIn(r.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)) {
		if l.pool == request.Pool && ipalloc.FamilyOf(l.cidr.Addr()) == f {
			has += len(multipool.Inner(l.cidr))
		}
	}
	if r.cfg.Settings.ParkBlocks && len(r.cfg.Families) > 1 && r.space.room(m.name) == 0 {
		return
	}
	if free := r.space.freeBlocks(m.name, f == ipalloc.IPv4, request.Pool) - r.closedTo(m, f); has < needed && free > 0 {
		r.violate(9, "%s: node %s has %d %s addresses of pool %s, its agent asks for %d, and %d blocks are free", when, m.name, has, f, request.Pool, needed, free)
	}
}
