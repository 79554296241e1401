package world

import (
	"cmp"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

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
func (w *World) storedBeside(v Version) {
	if w.writer == nil {
		return
	}
	w.wrote = w.now
	w.lasting++
	w.Counts.did(v)
	w.holdShadow(v)
	if v.Kind == KindCiliumPool {
		w.holdCiliumPool(v)
	}
}

func isOurs(obj *ciliumv2alpha1.CiliumPodIPPool) bool {
	return obj.Labels[ciliumpool.ManagedByLabel] == ciliumpool.ManagedBy
}

// holdCiliumPool checks what an operator did to a CiliumPodIPPool: it does not touch those of
// others, writes only the ranges of its own, and deletes none that is served or of which a node
// lists a CIDR. A pool that becomes needed while the call is in flight is lost, and must exist
// again at rest.
func (w *World) holdCiliumPool(v Version) {
	old, _ := v.Old.(*ciliumv2alpha1.CiliumPodIPPool)
	now, _ := v.New.(*ciliumv2alpha1.CiliumPodIPPool)
	switch {
	case old == nil:
	case !isOurs(old):
		w.violate(7, "CiliumPodIPPool %s, which is not the operator's, was written or deleted", v.Key)
	case now == nil && w.writer.current.needed:
		w.violate(10, "CiliumPodIPPool %s was deleted while a PodIPPool served it, or a node listed a CIDR of it", v.Key)
	case now == nil:
		if w.isListed(v.Key) {
			w.Counts.Faults["CiliumPodIPPool deleted too late"]++
		}
	case !sameButRanges(old, now):
		w.violate(7, "of CiliumPodIPPool %s more was changed than what ranges it has", v.Key)
	}
}

// sameButRanges reports whether two versions differ at most in which families they have.
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

// isListed reports whether a node lists a CIDR of a Cilium pool.
func (w *World) isListed(pool string) bool {
	return slices.ContainsFunc(w.api.Keys(KindCiliumNode), func(name string) bool {
		cn := w.api.Get(KindCiliumNode, name).(*ciliumv2.CiliumNode)
		return slices.ContainsFunc(listedIn(cn), func(l listed) bool { return l.pool == pool })
	})
}

// isServed reports whether a PodIPPool serves a Cilium pool.
func (w *World) isServed(pool string) bool {
	return slices.ContainsFunc(w.api.Keys(KindPool), func(name string) bool {
		return crd.CiliumPoolOf(w.api.Get(KindPool, name).(*v1alpha1.PodIPPool)) == pool
	})
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

// holdServed checks that a CIDR that an operator lists on a node is listed under the pool that
// its PodIPPool serves, if that exists. An operator may not have seen yet that people made one
// of the same name for another pool (docs/reliability.md).
func (w *World) holdServed(node string, l listed) {
	b, ok := w.api.Get(KindBlock, crd.BlockName(l.cidr)).(*v1alpha1.PodIPBlock)
	if !ok {
		return
	}
	if pool, ok := w.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool); ok && crd.CiliumPoolOf(pool) != l.pool && w.writer.current.serves[pool.Name] != l.pool {
		w.violate(10, "%s was listed on node %s, and PodIPPool %s serves another pool", l, node, pool.Name)
	}
}

// holdOnce checks that no address of a CIDR that an operator lists on a node is listed twice.
func (w *World) holdOnce(node string, l listed, others []listed) {
	for _, other := range others {
		if other.cidr.Overlaps(l.cidr) {
			w.violate(1, "%s was listed on node %s beside %s", l, node, other)
		}
	}
}

// holdCiliumPoolsRest checks at rest that each served pool has a CiliumPodIPPool with ranges,
// and that the operator left no unneeded one.
func (w *World) holdCiliumPoolsRest(when string) {
	if w.cfg.Asking == nil {
		return
	}
	for _, name := range w.ciliumPools() {
		obj, served := w.ciliumPool(name), w.isServed(name)
		needed := served || w.isListed(name)
		switch {
		case obj == nil && served:
			w.violate(9, "%s: there is no CiliumPodIPPool %s, and a PodIPPool serves it", when, name)
		case obj == nil || !isOurs(obj):
		case !needed:
			w.violate(9, "%s: CiliumPodIPPool %s is left, which no PodIPPool serves and no node lists", when, name)
		case served && slices.ContainsFunc([]ipalloc.Family{ipalloc.IPv4, ipalloc.IPv6}, func(f ipalloc.Family) bool {
			return hasFamily(&obj.Spec, f) != w.servesFamily(name, f)
		}):
			w.violate(9, "%s: CiliumPodIPPool %s has not the ranges of the PodIPPools that serve it", when, name)
		}
	}
}

// servesFamily reports whether a PodIPPool has ranges of a family for a Cilium pool, or a node
// lists a CIDR of them.
func (w *World) servesFamily(ciliumPool string, f ipalloc.Family) bool {
	for _, name := range w.api.Keys(KindPool) {
		pool := w.api.Get(KindPool, name).(*v1alpha1.PodIPPool)
		if cidrs, _ := ranges(pool, f == ipalloc.IPv4); crd.CiliumPoolOf(pool) == ciliumPool && len(cidrs) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(w.api.Keys(KindCiliumNode), func(name string) bool {
		cn := w.api.Get(KindCiliumNode, name).(*ciliumv2.CiliumNode)
		return slices.ContainsFunc(listedIn(cn), func(l listed) bool { return l.pool == ciliumPool && ipalloc.FamilyOf(l.cidr.Addr()) == f })
	})
}
