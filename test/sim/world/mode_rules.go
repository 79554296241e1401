package world

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
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
func (r *modeRules) checkServed(node string, l whole.Entry) {
	b, ok := r.api.Get(KindBlock, crd.BlockName(l.CIDR)).(*v1alpha1.PodIPBlock)
	if !ok {
		return
	}
	if owner := crd.OwnerOfPool(b.Spec.CiliumPoolName); owner != "" {
		if b.Spec.CiliumPoolName != l.Pool || !r.rules.stays.of[l.CIDR.Addr()][owner] {
			r.violate(10, "%s was listed on node %s, and is for %s", l, node, owner)
		}
		return
	}
	if pool, ok := r.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool); ok && crd.CiliumPoolObjectName(pool) != l.Pool && r.rules.writer.current.serves[pool.Name] != l.Pool {
		r.violate(10, "%s was listed on node %s, and PodIPPool %s serves another pool", l, node, pool.Name)
	}
}

// checkParked checks the CIDRs that an operator parks, while their agent is settled, or lists again.
func (r *modeRules) checkParked(node string, old, now *ciliumv2.CiliumNode) {
	before, after, f := parkedIn(old), parkedIn(now), r.rules.writer.current
	for _, cidr := range after {
		if !slices.Contains(before, cidr) && f != nil && !f.settled {
			r.violate(2, "%s of node %s was parked while its agent may restart", cidr, node)
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
	for _, name := range o.parts.Node.Cluster.Pools.Names() {
		if pool := o.parts.Node.Cluster.Pools.Get(name); pool != nil {
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

// parkedIn returns the parked CIDRs of an agent's list.
func parkedIn(cn *ciliumv2.CiliumNode) []netip.Prefix {
	var out []netip.Prefix
	for _, l := range whole.Entries(cn) {
		if l.Parked {
			out = append(out, l.CIDR)
		}
	}
	return out
}

// ownIn returns the agent's own addresses.
func ownIn(cn *ciliumv2.CiliumNode) []netip.Addr { return whole.OwnAddresses(cn) }

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
		b, ok := r.api.Get(KindBlock, crd.BlockName(l.CIDR)).(*v1alpha1.PodIPBlock)
		if !ok || phaseOf(b) != v1alpha1.BlockDraining || r.modeRules.isLost(m, l.CIDR) {
			continue
		}
		switch {
		case r.space.freeBlocks(m.name, l.CIDR.Addr().Is4(), l.Pool) <= r.closedTo(m, ipalloc.FamilyOf(l.CIDR.Addr())): // no block could take its place
		case !m.whole.Uses(l.CIDR):
			r.violate(9, "%s: block %s of node %s drains, is empty, and is still listed", when, b.Name, m.name)
		case r.goesOn(m, cn, b, l.CIDR):
			r.violate(9, "%s: block %s of node %s drains, and its agent gives addresses of it to new pods", when, b.Name, m.name)
		}
	}
}

// goesOn reports whether an agent goes on allocating from a draining block. A block with its own
// addresses cannot leave, so only one run of the agent closes it.
func (r *settledRules) goesOn(m *machine, cn *ciliumv2.CiliumNode, b *v1alpha1.PodIPBlock, cidr netip.Prefix) bool {
	closed, own := b.Status.Closed, ciliumnode.MultiPool.View(cn).Own
	switch {
	case slices.Contains(m.whole.Closed(), cidr):
		return false
	case closed == nil:
		return true
	case closed.Container != m.kubelet.container() && slices.ContainsFunc(own, cidr.Contains):
		return false
	}
	return r.hasNewer(m, cidr, closed.Since.Time)
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
