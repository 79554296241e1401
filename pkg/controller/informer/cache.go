package informer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// CacheOptions keeps only the fields that decisions need, so that memory grows with the
// number of addresses and not with the size of objects. Objects from the cache are
// shared: copy before modifying.
func CacheOptions() cache.Options {
	shared := newShared()
	return cache.Options{
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		// Pools and blocks must not be in ByObject: creating a manager fails for kinds
		// that the API server does not serve yet.
		DefaultTransform: shared.strip,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:      {Transform: shared.stripNode},
			&corev1.Namespace{}: {Transform: stripNamespace},
		},
	}
}

// shared lets objects share what many of them have in common: the garbage collector follows each
// pointer to a copy.
type shared struct {
	// lists are the resources of Nodes: each is a map, which takes 700 bytes for one resource.
	lists *table[corev1.ResourceList]
	texts *table[string]
}

const (
	// maxSharedLists bounds how many lists are kept to be shared, as offers change, and
	// maxSharedTexts how many texts, as some labels are of one Node.
	maxSharedLists = 1024
	maxSharedTexts = 4096
)

func newShared() *shared {
	return &shared{lists: newTable[corev1.ResourceList](maxSharedLists), texts: newTable[string](maxSharedTexts)}
}

// table keeps values to be shared, up to a number of them. It is safe for concurrent use.
type table[V any] struct {
	most int

	mu   sync.Mutex
	kept map[string]V
}

func newTable[V any](most int) *table[V] { return &table[V]{most: most, kept: map[string]V{}} }

// of returns the value kept under a key, or keeps this one.
func (t *table[V]) of(key string, value V) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.kept[key]; ok {
		return known
	}
	if len(t.kept) >= t.most {
		clear(t.kept)
	}
	t.kept[key] = value
	return value
}

// stripManagedFields removes the managed fields of an object.
var stripManagedFields = cache.TransformStripManagedFields()

// strip removes the managed fields of an object, and lets blocks share texts.
func (s *shared) strip(obj any) (any, error) {
	obj, err := stripManagedFields(obj)
	if b, ok := obj.(*v1alpha1.PodIPBlock); ok {
		b.Spec.PoolName, b.Status.Phase = s.text(b.Spec.PoolName), v1alpha1.BlockPhase(s.text(string(b.Status.Phase)))
		if slices.Equal(b.Finalizers, onlyOurs) {
			b.Finalizers = onlyOurs
		}
	}
	return obj, err
}

// onlyOurs are the finalizers of nearly all blocks. Never changed.
var onlyOurs = []string{v1alpha1.Finalizer}

// text returns an equal text to be used in place of this one.
func (s *shared) text(text string) string { return s.texts.of(text, text) }

// resources returns an equal list to be used in place of this one.
func (s *shared) resources(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		fmt.Fprintf(&key, "%s=%s,", name, quantity.String())
	}
	return s.lists.of(key.String(), list)
}

func (s *shared) stripNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	n.ManagedFields, n.Labels = nil, s.labels(n.Name, n.Labels)
	if paused, ok := n.Annotations[v1alpha1.PausedAnnotation]; ok {
		n.Annotations = map[string]string{v1alpha1.PausedAnnotation: paused}
	} else {
		n.Annotations = nil
	}
	n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable}
	capacity, allocatable := state.KeepResources(&n.Status)
	n.Status = corev1.NodeStatus{
		Addresses: s.ipAddresses(n.Status.Addresses), Conditions: shortageOf(n.Status.Conditions),
		Capacity: s.resources(capacity), Allocatable: s.resources(allocatable),
	}
	return n, nil
}

// labels returns the labels of a Node with shared texts. A value that is the Node's name shares that.
func (s *shared) labels(node string, labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	out := make(map[string]string, len(labels))
	for key, value := range labels {
		if value != node {
			out[s.text(key)] = s.text(value)
		} else {
			out[s.text(key)] = node
		}
	}
	return out
}

// ipAddresses returns those that are IP addresses, of any type.
func (s *shared) ipAddresses(addresses []corev1.NodeAddress) []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, a := range addresses {
		if _, ok := ipalloc.ParseAddr(a.Address); ok {
			out = append(out, corev1.NodeAddress{Type: corev1.NodeAddressType(s.text(string(a.Type))), Address: a.Address})
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
