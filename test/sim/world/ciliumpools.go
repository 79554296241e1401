package world

import (
	"cmp"
	"slices"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
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
