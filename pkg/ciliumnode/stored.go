package ciliumnode

import (
	"maps"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stored is the in-memory form of a CiliumNode: its View, and what else Recreate
// restores. The maps of an object would take twice the memory.
type Stored struct {
	*View

	labels, annotations map[string]string
	owners              []metav1.OwnerReference
	// spec has no pool if View.Pool contains all of it.
	spec ciliumv2.NodeSpec
}

// ToStored reads a CiliumNode of crd mode, which must not be changed afterwards.
func ToStored(cn *ciliumv2.CiliumNode) *Stored { return CRD.ToStored(cn) }

// At is the CiliumNode with another resourceVersion.
func (k *Stored) At(version string) *Stored {
	view, at := *k.View, *k
	view.ResourceVersion, at.View = version, &view
	return &at
}

// saysAll reports whether the View contains everything in a pool.
func (v *View) saysAll(pool ipamtypes.AllocationMap) bool {
	for _, ip := range pool {
		if ip.Resource != "" {
			return false
		}
	}
	return len(v.Pool) == len(pool)
}

// OwnedBy reports whether a Node owns the CiliumNode.
func (k *Stored) OwnedBy(node *corev1.Node) bool {
	for _, ref := range k.owners {
		if ref.Kind == "Node" && ref.UID == node.UID {
			return true
		}
	}
	return false
}

// rebuild is the object that replaces a deleted one, owned by node.
func (k *Stored) rebuild(node *corev1.Node) *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{
		ObjectMeta: metav1.ObjectMeta{
			Name:            k.Name,
			Labels:          maps.Clone(k.labels),
			Annotations:     maps.Clone(k.annotations),
			OwnerReferences: []metav1.OwnerReference{ownerOf(node)},
		},
		Spec: *k.spec.DeepCopy(),
	}
	if cn.Spec.IPAM.Pool == nil {
		cn.Spec.IPAM.Pool = make(ipamtypes.AllocationMap, len(k.Pool))
		for addr, owner := range k.Pool {
			cn.Spec.IPAM.Pool[addr.String()] = ipamtypes.AllocationIP{Owner: owner}
		}
	}
	return cn
}
