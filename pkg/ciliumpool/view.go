package ciliumpool

import (
	"maps"
	"slices"
	"strings"

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

// IsOurs reports whether an object has the operator's label.
func IsOurs(obj metav1.Object) bool { return obj.GetLabels()[ManagedByLabel] == ManagedBy }

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
	// Added are the CIDRs that people added to one of the operator's. No node gets any of them.
	Added []string
	// Marks are what Cilium reads of its metadata.
	Marks Marks
}

// Marks are the labels and annotations that a CiliumPodIPPool of an owner shares with that of its
// address's pool: BGP advertisements select by labels, and agents read ipam.cilium.io/skip-masquerade.
// Labels of tools such as Helm and Argo CD are none: they say who owns that one object.
type Marks struct {
	Labels, Annotations map[string]string
}

func marksOf(meta *metav1.ObjectMeta) Marks {
	var m Marks
	for key, value := range meta.Labels {
		domain, _, _ := strings.Cut(key, "/")
		if domain != "app.kubernetes.io" && domain != "argocd.argoproj.io" && domain != "helm.sh" && !strings.HasSuffix(domain, ".toolkit.fluxcd.io") {
			m.Labels = with(m.Labels, key, value)
		}
	}
	for key, value := range meta.Annotations {
		if strings.HasPrefix(key, "ipam.cilium.io/") {
			m.Annotations = with(m.Annotations, key, value)
		}
	}
	return m
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// Equal reports whether two objects have the same marks.
func (m Marks) Equal(other Marks) bool {
	return maps.Equal(m.Labels, other.Labels) && maps.Equal(m.Annotations, other.Annotations)
}

// Read reads a CiliumPodIPPool.
func Read(obj *ciliumv2alpha1.CiliumPodIPPool) *View {
	v := &View{
		Name: obj.Name, UID: obj.UID, ResourceVersion: obj.ResourceVersion,
		Ours: IsOurs(obj), Deleting: obj.DeletionTimestamp != nil,
		Selector: selectorOf(&obj.Spec), Marks: marksOf(&obj.ObjectMeta),
	}
	if r := obj.Spec.IPv4; r != nil {
		v.MaskSize[ipalloc.IPv4] = int(r.MaskSize)
		v.add(r.CIDRs)
	}
	if r := obj.Spec.IPv6; r != nil {
		v.MaskSize[ipalloc.IPv6] = int(r.MaskSize)
		v.add(r.CIDRs)
	}
	return v
}

func (v *View) add(cidrs []ciliumv2alpha1.PoolCIDR) {
	for _, cidr := range cidrs {
		if v.Ours && !slices.Contains(Nowhere[:], string(cidr)) {
			v.Added = append(v.Added, string(cidr))
		}
	}
}

// New returns the object to create if none exists, with the maskSize of each family; 0: without
// that family. That of an owner selects its pods, and has the marks.
func New(name string, want [2]int, marks Marks) *ciliumv2alpha1.CiliumPodIPPool {
	obj := &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ManagedByLabel: ManagedBy}}}
	if size := want[ipalloc.IPv4]; size != 0 {
		obj.Spec.IPv4 = &ciliumv2alpha1.IPv4PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{nowhere(ipalloc.IPv4, size)}, MaskSize: uint8(size)}
	}
	if size := want[ipalloc.IPv6]; size != 0 {
		obj.Spec.IPv6 = &ciliumv2alpha1.IPv6PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{nowhere(ipalloc.IPv6, size)}, MaskSize: uint8(size)}
	}
	if owner := crd.OwnerOfPool(name); owner != "" {
		obj.Spec.PodSelector = ForOwner(owner)
		maps.Copy(obj.Labels, marks.Labels)
		obj.Annotations = marks.Annotations
	}
	return obj
}

// Empty returns an empty object of the kind.
func Empty(name string) *ciliumv2alpha1.CiliumPodIPPool {
	return &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
