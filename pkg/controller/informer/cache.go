package informer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// CacheOptions keeps only the fields that decisions need, so that memory grows with the
// number of addresses and not with the size of objects. Objects from the cache are
// shared: copy before modifying.
func CacheOptions() cache.Options {
	return cache.Options{
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		// Pools and blocks must not be in ByObject: creating a manager fails for kinds
		// that the API server does not serve yet.
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:      {Transform: stripNode},
			&corev1.Namespace{}: {Transform: stripNamespace},
		},
	}
}

func stripNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	n.ManagedFields = nil
	if paused, ok := n.Annotations[v1alpha1.PausedAnnotation]; ok {
		n.Annotations = map[string]string{v1alpha1.PausedAnnotation: paused}
	} else {
		n.Annotations = nil
	}
	n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable}
	isName := func(a corev1.NodeAddress) bool { _, ok := ipalloc.ParseAddr(a.Address); return !ok }
	n.Status = corev1.NodeStatus{
		Addresses: slices.DeleteFunc(n.Status.Addresses, isName), Conditions: shortageOf(n.Status.Conditions),
		Capacity: state.KeepResources(n.Status.Capacity), Allocatable: state.KeepResources(n.Status.Allocatable),
	}
	return n, nil
}

// stripNamespace keeps the fields that name the Cilium pool for the namespace's pods.
func stripNamespace(obj any) (any, error) {
	n, ok := obj.(*corev1.Namespace)
	if !ok {
		return obj, nil
	}
	n.ManagedFields, n.Annotations = nil, state.KeepPoolRequests(n.Annotations)
	return n, nil
}

func shortageOf(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	for _, c := range conditions {
		if c.Type == v1alpha1.NodeAddressShortage {
			return []corev1.NodeCondition{c}
		}
	}
	return nil
}
