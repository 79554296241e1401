package world

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// Kind is a kind of object.
type Kind int

// Kinds.
const (
	KindNode Kind = iota
	KindCiliumNode
	KindPod
	KindPool
	KindBlock
	KindNamespace
	KindCiliumPool
	KindServiceCIDR
	KindPin
	kindCount
)

func (k Kind) String() string {
	return [...]string{"Node", "CiliumNode", "Pod", "PodIPPool", "PodIPBlock", "Namespace", "CiliumPodIPPool", "ServiceCIDR", "PodIPPin"}[k]
}

// custom reports whether a CustomResourceDefinition defines the kind.
func (k Kind) custom() bool {
	return k == KindCiliumNode || k == KindPool || k == KindBlock || k == KindPin || k == KindCiliumPool
}

func (k Kind) version() schema.GroupVersion {
	switch k {
	case KindCiliumNode:
		return ciliumv2.SchemeGroupVersion
	case KindPool, KindBlock, KindPin:
		return v1alpha1.GroupVersion
	case KindCiliumPool:
		return ciliumv2alpha1.SchemeGroupVersion
	case KindServiceCIDR:
		return networkingv1.SchemeGroupVersion
	}
	return corev1.SchemeGroupVersion
}

func (k Kind) group() schema.GroupKind {
	return schema.GroupKind{Group: k.version().Group, Kind: k.String()}
}

func (k Kind) resource() schema.GroupResource {
	name := [...]string{"nodes", "ciliumnodes", "pods", "podippools", "podipblocks", "namespaces", "ciliumpodippools", "servicecidrs", "podippins"}[k]
	return schema.GroupResource{Group: k.version().Group, Resource: name}
}

func (k Kind) empty() client.Object {
	return [...]client.Object{
		&corev1.Node{}, &ciliumv2.CiliumNode{}, &corev1.Pod{}, &v1alpha1.PodIPPool{}, &v1alpha1.PodIPBlock{},
		&corev1.Namespace{}, &ciliumv2alpha1.CiliumPodIPPool{}, &networkingv1.ServiceCIDR{}, &v1alpha1.PodIPPin{},
	}[k]
}

func kindOf(obj client.Object) Kind {
	switch obj.(type) {
	case *corev1.Node:
		return KindNode
	case *ciliumv2.CiliumNode:
		return KindCiliumNode
	case *corev1.Pod:
		return KindPod
	case *v1alpha1.PodIPPool:
		return KindPool
	case *v1alpha1.PodIPBlock:
		return KindBlock
	case *corev1.Namespace:
		return KindNamespace
	case *ciliumv2alpha1.CiliumPodIPPool:
		return KindCiliumPool
	case *networkingv1.ServiceCIDR:
		return KindServiceCIDR
	case *v1alpha1.PodIPPin:
		return KindPin
	}
	panic(fmt.Sprintf("no such kind here: %T", obj))
}

func keyOf(obj client.Object) string {
	if obj.GetNamespace() == "" {
		return obj.GetName()
	}
	return obj.GetNamespace() + "/" + obj.GetName()
}

// shallow copies an object without its pointers' targets.
func shallow(obj client.Object) client.Object {
	out := kindOf(obj).empty()
	assign(out, obj)
	return out
}

// assign copies like a cache that shares its objects.
func assign(to, from client.Object) { reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem()) }

func fieldOf(obj client.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

func copyStatus(to, from client.Object) {
	if status := fieldOf(to, "Status"); status.IsValid() {
		status.Set(fieldOf(from, "Status"))
	}
}

func (a *API) sameSpec(x, y client.Object) bool {
	return a.equal.DeepEqual(fieldOf(x, "Spec").Interface(), fieldOf(y, "Spec").Interface())
}

// truncateTimes truncates the times of conditions like JSON.
func truncateTimes(obj client.Object) {
	var conditions []metav1.Condition
	switch obj := obj.(type) {
	case *v1alpha1.PodIPPool:
		conditions = obj.Status.Conditions
	case *v1alpha1.PodIPBlock:
		conditions = obj.Status.Conditions
	}
	for i := range conditions {
		t := &conditions[i].LastTransitionTime
		*t = metav1.NewTime(t.Truncate(time.Second))
	}
}

func contains[T comparable](list []T, one T) bool { return slices.Contains(list, one) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// brief describes the changes of a version in one line.
func brief(v Version) string {
	s := fmt.Sprintf("%s %s @%d", v.Kind, v.Key, v.Version)
	if v.New == nil {
		return s + " deleted"
	}
	old := v.Old
	if old == nil {
		old = v.Kind.empty()
	}
	changes, err := client.MergeFrom(old).Data(v.New)
	if err != nil {
		panic(err)
	}
	return s + " " + string(changes)
}
