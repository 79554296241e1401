package crd

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// FrozenPool is what stands for a pool whose spec is not sound and never was
// while this process ran: paused, it rules the nodes it selects, so that they
// wait rather than go to another pool, gives out nothing and asks for nothing
// back. Where even its selector cannot be read, it rules no node.
func FrozenPool(obj *v1alpha1.PodIPPool) *Pool {
	p := &Pool{
		Name: obj.Name, UID: obj.UID, Generation: obj.Generation, Created: obj.CreationTimestamp.Time,
		Priority: obj.Spec.Priority, Selector: labels.Nothing(), CiliumPool: ciliumPool(obj),
		Paused: true, Deleting: obj.DeletionTimestamp != nil, frozen: true,
	}
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
	return p
}

// Frozen reports whether the pool is only a stand-in made by FrozenPool.
func (p *Pool) Frozen() bool { return p.frozen }
