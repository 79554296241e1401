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
	strip := stripPod
	if mode.ManyPools() {
		strip = stripAsking
	}
	return cache.Options{
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		DefaultTransform:             cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:          {Transform: strip, Field: state.PodFields()},
			&ciliumv2.CiliumNode{}: {Transform: stripCiliumNode},
			&corev1.Node{}:         {Transform: stripNode},
		},
	}
}

func stripNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	n.ManagedFields = nil
	n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints, PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, Unschedulable: n.Spec.Unschedulable}
	n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses, Conditions: n.Status.Conditions}
	return n, nil
}

// agentCache keeps the agents' own pods, which use the host network and so are not among the pods
// that need an address.
func agentCache(namespace string, selector labels.Selector) cache.Options {
	return cache.Options{
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		DefaultNamespaces:            map[string]cache.Config{namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: selector, Transform: stripPod},
		},
	}
}

func stripPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	p.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Annotations: state.KeepPoolRequests(p.Annotations),
		ResourceVersion: p.ResourceVersion, CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp}
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork}
	p.Status = corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs,
		Conditions: p.Status.Conditions, ContainerStatuses: p.Status.ContainerStatuses}
	return p, nil
}

// stripAsking also keeps the fields that select the Cilium pool of a pod.
func stripAsking(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	labels := p.Labels
	_, err := stripPod(p)
	p.Labels = labels
	return p, err
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
