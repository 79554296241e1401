package crd

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// FrozenPool is what stands for a pool that PoolFrom refuses. It gives out no
// block and asks for none back; of the blocks that nodes hold, what is published
// stays published. It depends on nothing but the object and the defaults, so an
// operator that has just started does with the pool what the one before it did.
//
// It withholds what its spec reserves, as far as that can be read. Where even its
// selector cannot be read, it selects no node.
func FrozenPool(obj *v1alpha1.PodIPPool, d Defaults) *Pool {
	p := settingsOf(obj, d)
	p.frozen, p.Selector = true, labels.Nothing()
	p.Policy.ReclaimDisabled = true // what a node gives back it could not get again
	if obj.Spec.NodeSelector == nil {
		p.Selector = labels.Everything()
	} else if selector, err := metav1.LabelSelectorAsSelector(obj.Spec.NodeSelector); err == nil {
		p.Selector = selector
	}
	if obj.Spec.IPv4 != nil {
		p.ranges[ipalloc.IPv4] = &Ranges{}
	}
	if obj.Spec.IPv6 != nil {
		p.ranges[ipalloc.IPv6] = &Ranges{}
	}
	_ = p.parseReserved(obj.Spec.Reserved, false, field.NewPath("spec", "reserved")) // PoolFrom has reported these
	return p
}

// Frozen reports whether the pool is only a stand-in made by FrozenPool.
func (p *Pool) Frozen() bool { return p.frozen }
