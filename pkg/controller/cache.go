package controller

import (
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:         {Transform: stripNode},
			&corev1.Pod{}:          {Transform: stripPod, Field: PodFields()},
			&ciliumv2.CiliumNode{}: {Transform: stripCiliumNode},
			&v1alpha1.PodIPPool{}:  {Transform: cache.TransformStripManagedFields()},
			&v1alpha1.PodIPBlock{}: {Transform: cache.TransformStripManagedFields()},
		},
	}
}

// AgentCacheOptions watch the agents' own pods, which are on the host network
// and so not among those that need an address.
func AgentCacheOptions(namespace string, selector labels.Selector) cache.Options {
	return cache.Options{
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		DefaultNamespaces:            map[string]cache.Config{namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: selector, Transform: stripAgent},
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
	n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints}
	n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses, Conditions: shortageOf(n.Status.Conditions)}
	return n, nil
}

func shortageOf(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	for _, c := range conditions {
		if c.Type == Shortage {
			return []corev1.NodeCondition{c}
		}
	}
	return nil
}

func stripPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	p.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork}
	p.Status = corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs}
	return p, nil
}

func stripAgent(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	p.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		ResourceVersion: p.ResourceVersion, DeletionTimestamp: p.DeletionTimestamp}
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
	status := corev1.PodStatus{}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			status.Conditions = append(status.Conditions, c)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == agentContainer {
			status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, ContainerID: c.ContainerID})
		}
	}
	p.Status = status
	return p, nil
}

func stripCiliumNode(obj any) (any, error) {
	cn, ok := obj.(*ciliumv2.CiliumNode)
	if !ok {
		return obj, nil
	}
	cn.ManagedFields = nil
	cn.Status = ciliumv2.NodeStatus{IPAM: cn.Status.IPAM}
	return cn, nil
}
