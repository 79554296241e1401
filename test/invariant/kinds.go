package invariant

import (
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// Kind is a kind of watched object.
type Kind string

// Kinds.
const (
	KindNode       Kind = "Node"
	KindPod        Kind = "Pod"
	KindCiliumNode Kind = "CiliumNode"
	KindBlock      Kind = "PodIPBlock"
	KindPool       Kind = "PodIPPool"
)

func kinds() []Kind { return []Kind{KindNode, KindPod, KindCiliumNode, KindBlock, KindPool} }

func (k Kind) newList() client.ObjectList {
	switch k {
	case KindNode:
		return &corev1.NodeList{}
	case KindPod:
		return &corev1.PodList{}
	case KindCiliumNode:
		return &ciliumv2.CiliumNodeList{}
	case KindBlock:
		return &v1alpha1.PodIPBlockList{}
	}
	return &v1alpha1.PodIPPoolList{}
}

// newMetadataList returns a list that holds only names and versions.
func (k Kind) newMetadataList() *metav1.PartialObjectMetadataList {
	group := corev1.SchemeGroupVersion
	switch k {
	case KindCiliumNode:
		group = ciliumv2.SchemeGroupVersion
	case KindBlock, KindPool:
		group = v1alpha1.GroupVersion
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group.Group, Version: group.Version, Kind: string(k) + "List"})
	return list
}

// keyOf returns an object's name, after its namespace if it has one.
func keyOf(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}
