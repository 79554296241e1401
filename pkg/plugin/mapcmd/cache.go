package mapcmd

import (
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// mapCache keeps what maps are drawn from. Objects from the cache are shared.
func mapCache(mode ciliumnode.Mode) cache.Options {
	return cache.Options{
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		DefaultTransform:             func(obj any) (any, error) { return slim(obj, mode.ManyPools()), nil },
		ByObject:                     map[client.Object]cache.ByObject{&corev1.Pod{}: {Field: state.PodFields()}},
	}
}

// agentCache keeps the agents' own pods, which use the host network and so are not among the pods
// that need an address.
func agentCache(namespace string, selector labels.Selector) cache.Options {
	return cache.Options{
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		DefaultNamespaces:            map[string]cache.Config{namespace: {}},
		DefaultTransform:             func(obj any) (any, error) { return slim(obj, false), nil },
		ByObject:                     map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: selector}},
	}
}

// slim drops fields that maps do not need before an object is cached. Labels of pods select their
// Cilium pool.
func slim(obj any, labelled bool) any {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Annotations, o.OwnerReferences = state.KeepPoolRequests(o.Annotations), nil
		if !labelled {
			o.Labels = nil
		}
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork}
		o.Status = corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs, Conditions: o.Status.Conditions, ContainerStatuses: o.Status.ContainerStatuses}
	case *ciliumv2.CiliumNode:
		o.Status = ciliumv2.NodeStatus{IPAM: o.Status.IPAM}
	case *corev1.Node:
		o.Spec = corev1.NodeSpec{Taints: o.Spec.Taints, PodCIDR: o.Spec.PodCIDR, PodCIDRs: o.Spec.PodCIDRs, Unschedulable: o.Spec.Unschedulable}
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses, Conditions: o.Status.Conditions}
	}
	return obj
}
