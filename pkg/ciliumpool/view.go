package ciliumpool

import (
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// A CiliumPodIPPool with this label belongs to the operator, which writes and deletes
// no other.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "cilium-pool-operator"
)

// View is a CiliumPodIPPool as plain values. It is read-only.
type View struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	// Ours: it has the operator's label. The operator ignores others.
	Ours bool
	// Deleting: it is being deleted.
	Deleting bool
	// MaskSize is, by family, the prefix length into which Cilium would split its
	// ranges, and which its BGP control plane announces; 0: it has no ranges of that
	// family.
	MaskSize [2]int
	// Selector selects the pods that request it without an annotation; nil: none.
	Selector *Selector
}

// Read reads a CiliumPodIPPool.
func Read(obj *ciliumv2alpha1.CiliumPodIPPool) *View {
	v := &View{
		Name: obj.Name, UID: obj.UID, ResourceVersion: obj.ResourceVersion,
		Ours: obj.Labels[ManagedByLabel] == ManagedBy, Deleting: obj.DeletionTimestamp != nil,
		Selector: selectorOf(&obj.Spec),
	}
	if r := obj.Spec.IPv4; r != nil {
		v.MaskSize[ipalloc.IPv4] = int(r.MaskSize)
	}
	if r := obj.Spec.IPv6; r != nil {
		v.MaskSize[ipalloc.IPv6] = int(r.MaskSize)
	}
	return v
}

// New returns the object to create if none exists, with the maskSize of each family; 0: without
// that family. That of a single pod selects the pod.
func New(name string, want [2]int) *ciliumv2alpha1.CiliumPodIPPool {
	obj := &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ManagedByLabel: ManagedBy}}}
	nowhere := func(f ipalloc.Family) []ciliumv2alpha1.PoolCIDR {
		return []ciliumv2alpha1.PoolCIDR{ciliumv2alpha1.PoolCIDR(Nowhere[f])}
	}
	if size := want[ipalloc.IPv4]; size != 0 {
		obj.Spec.IPv4 = &ciliumv2alpha1.IPv4PoolSpec{CIDRs: nowhere(ipalloc.IPv4), MaskSize: uint8(size)}
	}
	if size := want[ipalloc.IPv6]; size != 0 {
		obj.Spec.IPv6 = &ciliumv2alpha1.IPv6PoolSpec{CIDRs: nowhere(ipalloc.IPv6), MaskSize: uint8(size)}
	}
	if pod := crd.PodOfPool(name); pod != "" {
		obj.Spec.PodSelector = ForPod(pod)
	}
	return obj
}

// Carrier returns an empty object of the kind.
func Carrier(name string) *ciliumv2alpha1.CiliumPodIPPool {
	return &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
