package informer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// CacheOptions keeps only the fields that decisions need, so that memory grows with the
// number of addresses and not with the size of objects. Objects from the cache are
// shared: copy before modifying.
func CacheOptions() cache.Options {
	shared := &sharedResources{lists: map[string]corev1.ResourceList{}}
	return cache.Options{
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		// Pools and blocks must not be in ByObject: creating a manager fails for kinds
		// that the API server does not serve yet.
		DefaultTransform: stripDefault,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:      {Transform: shared.stripNode},
			&corev1.Namespace{}: {Transform: stripNamespace},
		},
	}
}

// stripDefault removes the managed fields of an object, and lets blocks share what many of them
// have in common.
func stripDefault(obj any) (any, error) {
	obj, err := cache.TransformStripManagedFields()(obj)
	if b, ok := obj.(*v1alpha1.PodIPBlock); ok {
		b.Spec.PoolName, b.Status.Phase = share(b.Spec.PoolName), share(b.Status.Phase)
		if slices.Equal(b.Finalizers, onlyOurs) {
			b.Finalizers = onlyOurs
		}
	}
	return obj, err
}

// onlyOurs are the finalizers of nearly all blocks. Never changed.
var onlyOurs = []string{v1alpha1.Finalizer}

// share returns an equal text that all callers share. The garbage collector visits every text
// that it finds in memory.
func share[T ~string](text T) T { return unique.Make(text).Value() }

// sharedResources lets Nodes with the same resources share the lists of them: each is a map,
// which takes 700 bytes for one resource.
type sharedResources struct {
	mu    sync.Mutex
	lists map[string]corev1.ResourceList
}

// maxSharedLists bounds how many lists are kept to be shared, as offers change.
const maxSharedLists = 1024

// of returns a list to be used in place of an equal one.
func (s *sharedResources) of(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		fmt.Fprintf(&key, "%s=%s,", name, quantity.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.lists[key.String()]; ok {
		return known
	}
	if len(s.lists) >= maxSharedLists {
		clear(s.lists)
	}
	s.lists[key.String()] = list
	return list
}

func (s *sharedResources) stripNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	n.ManagedFields, n.Labels = nil, sharing(n.Name, n.Labels)
	if paused, ok := n.Annotations[v1alpha1.PausedAnnotation]; ok {
		n.Annotations = map[string]string{v1alpha1.PausedAnnotation: paused}
	} else {
		n.Annotations = nil
	}
	n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable}
	capacity, allocatable := state.KeepResources(&n.Status)
	n.Status = corev1.NodeStatus{
		Addresses: ipAddresses(n.Status.Addresses), Conditions: shortageOf(n.Status.Conditions),
		Capacity: s.of(capacity), Allocatable: s.of(allocatable),
	}
	return n, nil
}

// sharing returns the labels of a node with texts that all nodes share, but for its name.
func sharing(node string, labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	out := make(map[string]string, len(labels))
	for key, value := range labels {
		if value == node {
			out[share(key)] = node
		} else {
			out[share(key)] = share(value)
		}
	}
	return out
}

// ipAddresses returns those that are IP addresses of the node.
func ipAddresses(addresses []corev1.NodeAddress) []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, a := range addresses {
		for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
			if a.Type == kind {
				out = append(out, corev1.NodeAddress{Type: kind, Address: a.Address})
			}
		}
	}
	return out
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
