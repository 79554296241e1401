package ciliumnode

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// originalOf returns what Recreate restores of a CiliumNode in addition to the View: no more of the spec
// than the chart's policy allows in a create, and a pool that the View lacks.
func originalOf(cn *ciliumv2.CiliumNode, pool ipamtypes.AllocationMap) *ciliumv2.CiliumNode {
	annotations := cn.Annotations
	if _, ok := annotations[badFields]; ok {
		annotations = maps.Clone(annotations)
		delete(annotations, badFields)
	}
	ipam := cn.Spec.IPAM
	ipam.Pool = pool
	return &ciliumv2.CiliumNode{
		ObjectMeta: metav1.ObjectMeta{Labels: cn.Labels, Annotations: annotations, OwnerReferences: cn.OwnerReferences},
		Spec: ciliumv2.NodeSpec{
			InstanceID: cn.Spec.InstanceID, BootID: cn.Spec.BootID, Addresses: cn.Spec.Addresses, HealthAddressing: cn.Spec.HealthAddressing,
			IngressAddressing: cn.Spec.IngressAddressing, Encryption: cn.Spec.Encryption, IPAM: ipam,
		},
	}
}

// rebuild returns the object that replaces a deleted one, owned by node.
func (v *View) rebuild(node *corev1.Node) *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{}
	if v.original != nil {
		v.original.DeepCopyInto(cn)
	}
	cn.Name = v.Name
	cn.OwnerReferences = []metav1.OwnerReference{ownerOf(node)}
	if cn.Spec.IPAM.Pool == nil {
		cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
		for addr, owner := range v.Published() {
			cn.Spec.IPAM.Pool[addr.String()] = ipamtypes.AllocationIP{Owner: owner}
		}
	}
	return cn
}

// NamedAddresses returns the addresses that the CiliumNode names: in its pool, in use, and the
// agent's own, including stale ones. Some occur twice.
func (v *View) NamedAddresses() iter.Seq[netip.Addr] {
	parts := []iter.Seq[netip.Addr]{maps.Keys(v.Used), slices.Values(v.Own)}
	if a := v.Addresses; a != nil {
		parts = append(parts, maps.Keys(a.Pool), slices.Values(a.NonCanonical), slices.Values(a.Stale))
	}
	return func(yield func(netip.Addr) bool) {
		for _, addrs := range parts {
			for addr := range addrs {
				if !yield(addr) {
					return
				}
			}
		}
	}
}
