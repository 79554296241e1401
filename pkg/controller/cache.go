package controller

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// CacheOptions keep of every object what is decided on, so that memory follows
// the number of addresses and not the size of objects. Objects from the cache
// are shared: copy before a change.
func CacheOptions() cache.Options {
	return cache.Options{
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		// Pools and blocks must not be in ByObject: a manager cannot be made with
		// kinds that the API server does not serve yet.
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
	n.Status = corev1.NodeStatus{
		Addresses: n.Status.Addresses, Conditions: shortageOf(n.Status.Conditions), Allocatable: podsOf(&n.Status),
	}
	return n, nil
}

// stripNamespace keeps what says which pool of Cilium's its pods want.
func stripNamespace(obj any) (any, error) {
	n, ok := obj.(*corev1.Namespace)
	if !ok {
		return obj, nil
	}
	n.ManagedFields, n.Annotations = nil, KeepAsked(n.Annotations)
	return n, nil
}

// podsOf keeps how many pods the kubelet admits.
func podsOf(s *corev1.NodeStatus) corev1.ResourceList {
	for _, list := range []corev1.ResourceList{s.Allocatable, s.Capacity} {
		if pods, ok := list[corev1.ResourcePods]; ok && pods.Sign() > 0 {
			return corev1.ResourceList{corev1.ResourcePods: pods}
		}
	}
	return nil
}

// MaxPods is how many pods the node's kubelet admits: status.allocatable.pods, or
// capacity.pods where there is none. 0: the Node does not say.
func MaxPods(n *corev1.Node) int {
	if n == nil {
		return 0
	}
	pods := podsOf(&n.Status)[corev1.ResourcePods]
	return int(min(pods.Value(), math.MaxInt32))
}

func shortageOf(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	for _, c := range conditions {
		if c.Type == Shortage {
			return []corev1.NodeCondition{c}
		}
	}
	return nil
}
