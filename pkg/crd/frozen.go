package crd

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// frozenPool is the stand-in for a pool that cannot serve. It assigns no block and
// requests none back; nodes keep their blocks, and published addresses stay published.
// It depends only on the object and the defaults, so a restarted operator treats the
// pool as the previous one did.
//
// It withholds the reserved ranges of its spec, as far as they are readable. If its selector is not
// readable, it selects no node.
func frozenPool(obj *v1alpha1.PodIPPool, d Defaults) *Pool {
	p := settingsOf(obj, d)
	p.frozen, p.Selector = true, labels.Nothing()
	p.Policy.ReclaimDisabled = true // a node could not get a returned block again
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
	_ = p.parseReserved(obj.Spec.Reserved, false, field.NewPath("spec", "reserved")) // the caller has reported these
	return p
}

// Frozen reports whether the pool is only a stand-in made because PoolFrom failed.
func (p *Pool) Frozen() bool { return p.frozen }
