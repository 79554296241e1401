package world

import (
	"net/netip"
	"slices"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// listedIn returns an agent's list. A parked CIDR is listed for its own pool.
func listedIn(cn *ciliumv2.CiliumNode) []whole.Entry {
	out := whole.Entries(cn)
	for i := range out {
		out[i].Parked = false
	}
	return out
}

// allocatedIn returns the CIDRs on an agent's list, of any pool.
func allocatedIn(cn *ciliumv2.CiliumNode) []netip.Prefix {
	var out []netip.Prefix
	for _, l := range listedIn(cn) {
		out = append(out, l.CIDR)
	}
	return out
}

// allocatedOf returns pools.allocated with these CIDRs, in the agents' order.
func allocatedOf(list []whole.Entry) []ipamtypes.IPAMPoolAllocation {
	var out []ipamtypes.IPAMPoolAllocation
	for _, l := range slices.SortedFunc(slices.Values(list), whole.Entry.Compare) {
		if len(out) == 0 || out[len(out)-1].Pool != l.Under() {
			out = append(out, ipamtypes.IPAMPoolAllocation{Pool: l.Under()})
		}
		last := &out[len(out)-1]
		last.CIDRs = append(last.CIDRs, iputil.PrefixFrom(l.CIDR))
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
// with its last list (multiPoolManager.ciliumNodeUpdated).
func (m *machine) seesList(cn *ciliumv2.CiliumNode) {
	if cn == nil {
		return
	}
	m.seen, m.asked = cn, true
	m.whole.SeesAll(cn)
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
	before, after := whole.Entries(m.seen), whole.Entries(cn)
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

// checkWhole checks the CIDRs that an operator adds to a list.
func (r *modeRules) checkWhole(v Version) {
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	if !r.whole() || now == nil {
		return
	}
	if old == nil {
		old = &ciliumv2.CiliumNode{}
	}
	before, back := listedIn(old), r.listedBefore(v.Key)
	for _, l := range listedIn(now) {
		if slices.Contains(before, l) {
			continue
		}
		r.checkAssigned(r.machine(v.Key), l.CIDR)
		if !slices.Contains(back, l) {
			r.checkServed(v.Key, l)
		}
	}
	if r.multiPool() {
		r.checkParked(v.Key, old, now)
	}
}

// listedBefore returns a CiliumNode's list before its last deletion; it is restored like that.
func (r *modeRules) listedBefore(node string) []whole.Entry {
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

// checkUnknown checks that no agent can still allocate an address of a block that is deleted, or
// that another node gets. Machines without a Node are not checked.
func (r *modeRules) checkUnknown(b *v1alpha1.PodIPBlock, how string) {
	cidr := cidrOf(b)
	for _, m := range r.machines {
		node := r.api.Get(KindNode, m.name)
		if !r.whole() || node == nil || node.GetUID() != m.node || how == "claimed" && m.name == b.Spec.NodeName {
			continue
		}
		for _, has := range m.gives() {
			if has.Overlaps(cidr) && !r.isBeside(b, m.name, has) {
				r.violate(1, "block %s was %s, and the agent of node %s gives out addresses of %s", b.Name, how, m.name, has)
			}
		}
	}
}

// gives returns the whole blocks that a machine gives addresses of.
func (m *machine) gives() []netip.Prefix {
	if m.whole != nil {
		return m.whole.CIDRs()
	}
	if m.nodeAgent != nil {
		return m.nodeAgent.opens()
	}
	return nil
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
		case !slices.ContainsFunc(entries, func(l whole.Entry) bool { return l.CIDR.String() == b.Spec.CIDR }):
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
func (r *modeRules) isPartOfListed(b *v1alpha1.PodIPBlock, entries []whole.Entry) bool {
	cidr := cidrOf(b)
	return slices.ContainsFunc(entries, func(l whole.Entry) bool { return l.CIDR.Overlaps(cidr) && r.isBeside(b, b.Spec.NodeName, l.CIDR) })
}

// checkRequestedRest checks at rest that a node has the addresses of a pool and a family that
// its agent requests, as far as blocks are free. Where blocks are parked, it gets no more of
// one family than pods use while the other family has none.
func (r *settledRules) checkRequestedRest(when string, m *machine, request ipamtypes.IPAMPoolRequest, f ipalloc.Family) {
	has, needed := 0, [2]int{ipalloc.IPv4: request.Needed.IPv4Addrs, ipalloc.IPv6: request.Needed.IPv6Addrs}[f]
	for _, l := range listedIn(r.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)) {
		if l.Pool == request.Pool && ipalloc.FamilyOf(l.CIDR.Addr()) == f {
			has += len(multipool.Inner(l.CIDR))
		}
	}
	if r.cfg.Settings.ParkBlocks && len(r.cfg.Families) > 1 && r.space.room(m.name) == 0 {
		return
	}
	if free := r.space.freeBlocks(m.name, f == ipalloc.IPv4, request.Pool) - r.closedTo(m, f); has < needed && free > 0 {
		r.violate(9, "%s: node %s has %d %s addresses of pool %s, its agent asks for %d, and %d blocks are free", when, m.name, has, f, request.Pool, needed, free)
	}
}
