package world

import (
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
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
