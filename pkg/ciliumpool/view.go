package ciliumpool

import (
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// A CiliumPodIPPool with this label is the operator's: it writes and deletes no
// other.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "cilium-pool-operator"
)

// View is a CiliumPodIPPool as plain values. It is read only.
type View struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	// Ours: it has the operator's label. Another's is left alone.
	Ours bool
	// Deleting: it is on its way out.
	Deleting bool
	// Ranges are by family; nil: it has none of that.
	Ranges [2]*Ranges
	// Selector picks the pods that ask for it by no annotation; nil: it picks none.
	Selector *Selector
}

// Ranges are what a CiliumPodIPPool says of one family.
type Ranges struct {
	// CIDRs are as they are written.
	CIDRs []string
	// MaskSize is the prefix length of what Cilium would cut them into, and of what
	// its BGP control plane lets out.
	MaskSize int
}

// Read reads a CiliumPodIPPool.
func Read(obj *ciliumv2alpha1.CiliumPodIPPool) *View {
	v := &View{
		Name: obj.Name, UID: obj.UID, ResourceVersion: obj.ResourceVersion,
		Ours: obj.Labels[ManagedByLabel] == ManagedBy, Deleting: obj.DeletionTimestamp != nil,
		Selector: selectorOf(&obj.Spec),
	}
	if r := obj.Spec.IPv4; r != nil {
		v.Ranges[ipalloc.IPv4] = rangesOf(r.CIDRs, r.MaskSize)
	}
	if r := obj.Spec.IPv6; r != nil {
		v.Ranges[ipalloc.IPv6] = rangesOf(r.CIDRs, r.MaskSize)
	}
	return v
}

func rangesOf(cidrs []ciliumv2alpha1.PoolCIDR, maskSize uint8) *Ranges {
	r := &Ranges{MaskSize: int(maskSize)}
	for _, c := range cidrs {
		r.CIDRs = append(r.CIDRs, string(c))
	}
	return r
}

// New is the object to make where there is none.
func New(name string, want [2]*Ranges) *ciliumv2alpha1.CiliumPodIPPool {
	obj := &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ManagedByLabel: ManagedBy}}}
	if r := want[ipalloc.IPv4]; r != nil {
		obj.Spec.IPv4 = &ciliumv2alpha1.IPv4PoolSpec{CIDRs: poolCIDRs(r), MaskSize: uint8(r.MaskSize)}
	}
	if r := want[ipalloc.IPv6]; r != nil {
		obj.Spec.IPv6 = &ciliumv2alpha1.IPv6PoolSpec{CIDRs: poolCIDRs(r), MaskSize: uint8(r.MaskSize)}
	}
	return obj
}

func poolCIDRs(r *Ranges) []ciliumv2alpha1.PoolCIDR {
	out := make([]ciliumv2alpha1.PoolCIDR, 0, len(r.CIDRs))
	for _, c := range r.CIDRs {
		out = append(out, ciliumv2alpha1.PoolCIDR(c))
	}
	return out
}

// Carrier is an empty object of the kind.
func Carrier(name string) *ciliumv2alpha1.CiliumPodIPPool {
	return &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
