package world

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/cilium/cilium/pkg/node/addressing"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// modeRules judge writes in multi-pool and kubernetes mode.
type modeRules struct{ *World }

// checkCiliumPool checks an operator's write of a CiliumPodIPPool: it does not touch those of
// others, writes only the ranges of its own, and deletes none that is served or of which a node
// lists a CIDR. A pool that becomes needed while the call is in flight is lost, and must exist
// again at rest.
func (r *modeRules) checkCiliumPool(v Version) {
	old, _ := v.Old.(*ciliumv2alpha1.CiliumPodIPPool)
	now, _ := v.New.(*ciliumv2alpha1.CiliumPodIPPool)
	switch {
	case old == nil:
	case !isOurs(old):
		r.violate(7, "CiliumPodIPPool %s, which is not the operator's, was written or deleted", v.Key)
	case now == nil && r.rules.writer.current.needed:
		r.violate(10, "CiliumPodIPPool %s was deleted while a PodIPPool served it, or a node listed a CIDR of it", v.Key)
	case now == nil:
	case !sameButRanges(old, now):
		r.violate(7, "of CiliumPodIPPool %s more was changed than what ranges it has", v.Key)
	}
}

// checkServed checks that a CIDR that an operator lists on a node is listed under the pool that
// its PodIPPool serves, if that exists. An operator may not have seen yet that people made one
// of the same name for another pool (docs/reliability.md).
func (r *modeRules) checkServed(node string, l listed) {
	b, ok := r.api.Get(KindBlock, crd.BlockName(l.cidr)).(*v1alpha1.PodIPBlock)
	if !ok {
		return
	}
	if pool, ok := r.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool); ok && crd.CiliumPoolOf(pool) != l.pool && r.rules.writer.current.serves[pool.Name] != l.pool {
		r.violate(10, "%s was listed on node %s, and PodIPPool %s serves another pool", l, node, pool.Name)
	}
}

// checkOnce checks that no address of a CIDR that an operator lists on a node is listed twice.
func (r *modeRules) checkOnce(node string, l listed, others []listed) {
	for _, other := range others {
		if other.cidr.Overlaps(l.cidr) {
			r.violate(1, "%s was listed on node %s beside %s", l, node, other)
		}
	}
}

// checkParked checks the CIDRs that an operator parks or lists again.
func (r *modeRules) checkParked(node string, old, now *ciliumv2.CiliumNode) {
	before, after := parkedIn(old), parkedIn(now)
	for _, cidr := range after {
		if slices.Contains(before, cidr) {
			continue
		}
		if len(after) > 1 {
			r.violate(2, "%v of node %s are parked at once", after, node)
		}
		r.checkPark(node, cidr)
		if !keepsEntry(old, now, cidr) {
			r.violate(2, "%s of node %s was parked, and no entry of its pool is left: its agent will not see that", cidr, node)
		}
	}
	for _, cidr := range before {
		if slices.Contains(after, cidr) || !slices.Contains(allocatedIn(now), cidr) {
			continue
		}
		if !r.podSays(cidr) && !slices.ContainsFunc(r.rules.writer.podsOf(node), cidr.Contains) && !slices.ContainsFunc(ownIn(old), cidr.Contains) {
			r.violate(2, "%s of node %s was listed again, and nothing is known to use it: its agent will allocate from it", cidr, node)
		}
	}
}

// checkPark checks that a parked block drains, and that its agent is settled.
func (r *modeRules) checkPark(node string, cidr netip.Prefix) {
	if f := r.rules.writer.current; f != nil && !f.settled {
		r.violate(2, "%s of node %s was parked while its agent may restart", cidr, node)
	}
	if b, ok := r.api.Get(KindBlock, crd.BlockName(cidr)).(*v1alpha1.PodIPBlock); ok && !r.hasDrained(b) {
		r.violate(2, "%s of node %s was parked, and does not drain", cidr, node)
	}
}

// hasDrained reports whether a block of a node drains, or once did. After a backup is restored
// the block is another object, in service again, which an operator may not have seen yet.
func (r *modeRules) hasDrained(b *v1alpha1.PodIPBlock) bool {
	return slices.ContainsFunc(r.api.history[KindBlock], func(v Version) bool {
		was, ok := v.New.(*v1alpha1.PodIPBlock)
		return ok && was.Name == b.Name && was.Spec.NodeName == b.Spec.NodeName && phaseOf(was) == v1alpha1.BlockDraining
	})
}

// keepMaskSizes is the validation in the CustomResourceDefinition of CiliumPodIPPools.
func keepMaskSizes(old, obj client.Object) error {
	was, ok := old.(*ciliumv2alpha1.CiliumPodIPPool)
	if !ok {
		return nil
	}
	now := obj.(*ciliumv2alpha1.CiliumPodIPPool)
	v4 := was.Spec.IPv4 != nil && now.Spec.IPv4 != nil && was.Spec.IPv4.MaskSize != now.Spec.IPv4.MaskSize
	v6 := was.Spec.IPv6 != nil && now.Spec.IPv6 != nil && was.Spec.IPv6.MaskSize != now.Spec.IPv6.MaskSize
	if v4 || v6 {
		return apierrors.NewInvalid(KindCiliumPool.group(), keyOf(obj), field.ErrorList{
			field.Forbidden(field.NewPath("spec", "maskSize"), "maskSize is immutable"),
		})
	}
	return nil
}

// storedBeside records a version of a kind that the judge does not know.
func (r *writeRules) storedBeside(v Version) {
	if r.writer == nil {
		return
	}
	r.quiescence.wrote = r.clock.now
	r.quiescence.lasting++
	r.Counts.did(v)
	r.checkShadow(v)
	if v.Kind == KindCiliumPool {
		r.modeRules.checkCiliumPool(v)
	}
}

func isOurs(obj *ciliumv2alpha1.CiliumPodIPPool) bool {
	return obj.Labels[ciliumpool.ManagedByLabel] == ciliumpool.ManagedBy
}

// sameButRanges reports whether two versions differ at most in their families.
func sameButRanges(a, b *ciliumv2alpha1.CiliumPodIPPool) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	if a.Spec.IPv4 == nil || b.Spec.IPv4 == nil {
		a.Spec.IPv4, b.Spec.IPv4 = nil, nil
	}
	if a.Spec.IPv6 == nil || b.Spec.IPv6 == nil {
		a.Spec.IPv6, b.Spec.IPv6 = nil, nil
	}
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

// serves returns which Cilium pool each PodIPPool serves, as an operator knows.
func (o *Operator) serves() map[string]string {
	if o.w.cfg.Asking == nil {
		return nil
	}
	out := map[string]string{}
	for _, name := range o.parts.Node.Pools.Names() {
		if pool := o.parts.Node.Pools.Get(name); pool != nil {
			out[name] = cmp.Or(pool.CiliumPool, crd.DefaultCiliumPool)
		}
	}
	return out
}

// checkCiliumPoolsRest checks at rest that each served pool has a CiliumPodIPPool with ranges,
// and that the operator left no unneeded one.
func (r *settledRules) checkCiliumPoolsRest(when string) {
	if r.cfg.Asking == nil {
		return
	}
	for _, name := range r.ciliumPools() {
		obj, served := r.ciliumPool(name), r.isServed(name)
		needed := served || r.isListed(name)
		switch {
		case obj == nil && served:
			r.violate(9, "%s: there is no CiliumPodIPPool %s, and a PodIPPool serves it", when, name)
		case obj == nil || !isOurs(obj):
		case !needed:
			r.violate(9, "%s: CiliumPodIPPool %s is left, which no PodIPPool serves and no node lists", when, name)
		case served && slices.ContainsFunc([]ipalloc.Family{ipalloc.IPv4, ipalloc.IPv6}, func(f ipalloc.Family) bool {
			return hasFamily(&obj.Spec, f) != r.servesFamily(name, f)
		}):
			r.violate(9, "%s: CiliumPodIPPool %s has not the ranges of the PodIPPools that serve it", when, name)
		}
	}
}

// parkedSuffix ends the names of the reserved pools under which blocks are parked.
const parkedSuffix = ".draining.cilium-pool.io"

// parkedIn returns the parked CIDRs of an agent's list.
func parkedIn(cn *ciliumv2.CiliumNode) []netip.Prefix {
	var out []netip.Prefix
	for _, l := range entriesOf(cn) {
		if strings.HasSuffix(l.pool, parkedSuffix) {
			out = append(out, l.cidr)
		}
	}
	return out
}

// keepsEntry reports whether the pool from which a CIDR was parked still has an entry.
func keepsEntry(old, now *ciliumv2.CiliumNode, cidr netip.Prefix) bool {
	for _, l := range entriesOf(old) {
		if l.cidr == cidr {
			return slices.ContainsFunc(now.Spec.IPAM.Pools.Allocated, func(e ipamtypes.IPAMPoolAllocation) bool { return e.Pool == l.pool })
		}
	}
	return false
}

// ownIn returns the agent's own addresses.
func ownIn(cn *ciliumv2.CiliumNode) []netip.Addr {
	var out []netip.Addr
	for _, a := range cn.Spec.Addresses {
		if addr, err := netip.ParseAddr(a.IP); err == nil && a.Type == addressing.NodeCiliumInternalIP {
			out = append(out, addr)
		}
	}
	return out
}

// lostParked reports that an agent saw the CIDR of an address parked when it
// started: it cannot restore the pod (docs/modes.md).
func (m *machine) lostParked(addr netip.Addr) bool {
	return m.seen != nil && slices.ContainsFunc(parkedIn(m.seen), func(p netip.Prefix) bool { return p.Contains(addr) })
}

// checkParkedRest checks at rest that no CIDR is parked, and that agents allocate from no draining
// block and keep no empty one.
func (r *settledRules) checkParkedRest(when string, m *machine, cn *ciliumv2.CiliumNode) {
	if parked := parkedIn(cn); len(parked) > 0 {
		r.violate(9, "%s: %v of node %s are parked", when, parked, m.name)
	}
	if !r.cfg.Settings.ParkBlocks || m.whole == nil || m.phase != serving {
		return
	}
	for _, l := range listedIn(cn) {
		b, ok := r.api.Get(KindBlock, crd.BlockName(l.cidr)).(*v1alpha1.PodIPBlock)
		if !ok || phaseOf(b) != v1alpha1.BlockDraining || r.modeRules.isLost(m, l.cidr) {
			continue
		}
		switch {
		case r.space.freeBlocks(m.name, l.cidr.Addr().Is4(), l.pool) <= r.closedTo(m, ipalloc.FamilyOf(l.cidr.Addr())): // no block could take its place
		case !m.whole.Uses(l.cidr):
			r.violate(9, "%s: block %s of node %s drains, is empty, and is still listed", when, b.Name, m.name)
		case !slices.Contains(m.whole.Closed(), l.cidr) && (b.Status.Closed == nil || r.hasNewer(m, l.cidr, b.Status.Closed.Since.Time)):
			r.violate(9, "%s: block %s of node %s drains, and its agent gives addresses of it to new pods", when, b.Name, m.name)
		}
	}
}

// lacksAddresses reports whether a pod of the machine has no address.
func (m *machine) lacksAddresses() bool {
	return slices.ContainsFunc(m.w.workload.slots, func(slot string) bool {
		pod := m.kubelet.podObject(slot)
		return pod != nil && !finished(pod) && m.endpoints[slot] == nil
	})
}

// hasNewer reports whether a pod with an address of a CIDR was created after a given time.
func (r *settledRules) hasNewer(m *machine, cidr netip.Prefix, since time.Time) bool {
	for _, e := range m.endpoints {
		if slices.ContainsFunc(e.addrs(), cidr.Contains) && e.pod.GetCreationTimestamp().After(since) {
			return true
		}
	}
	return false
}

// closedTo returns the number of CIDRs of a family without a block that are of no use to a node:
// its agent has closed them, or its last block of that CIDR says so. An agent that saw only the
// latest version of its list may have missed that, and the operator cannot know.
func (r *settledRules) closedTo(m *machine, f ipalloc.Family) int {
	if m.whole == nil { // its agent is down
		return 0
	}
	closed := m.whole.Closed()
	for _, v := range r.api.history[KindBlock] {
		b, ok := v.Old.(*v1alpha1.PodIPBlock)
		if ok && v.New == nil && b.Spec.NodeName == m.name && b.Status.Closed != nil && b.Status.Closed.Container == m.kubelet.container() {
			closed = append(closed, cidrOf(b))
		}
	}
	slices.SortFunc(closed, netip.Prefix.Compare)
	n := 0
	for _, cidr := range slices.Compact(closed) {
		if ipalloc.FamilyOf(cidr.Addr()) == f && r.api.Get(KindBlock, crd.BlockName(cidr)) == nil {
			n++
		}
	}
	return n
}

// podsOf returns the addresses that the statuses of a node's pods named when the reconcile in
// progress began.
func (o *Operator) podsOf(node string) []netip.Addr {
	var out []netip.Addr
	if o.current != nil && o.current.name == node {
		for addr := range o.current.pods {
			out = append(out, addr)
		}
	}
	return out
}
