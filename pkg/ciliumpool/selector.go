package ciliumpool

import (
	"cmp"
	"maps"

	"github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	slimlabels "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/labels"
	slimmetav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// Labels that selectors match in addition to a pod's own
// (pkg/k8s/apis/cilium.io/const.go, PodNamespaceLabel and PodNameLabel, v1.20.1).
const (
	podNamespaceLabel = "io.kubernetes.pod.namespace"
	podNameLabel      = "io.kubernetes.pod.name"
)

// Selector is the pod selection of a CiliumPodIPPool.
type Selector struct {
	pod, namespace slimlabels.Selector // nil: all
	// source is their source.
	source [2]*slimmetav1.LabelSelector
}

// selectorOf compiles the selectors of a CiliumPodIPPool, as agents do
// (pkg/ipam/metadata/manager.go, compilePool, v1.20.1): without selectors it selects no
// pod. If they do not compile, agents keep the previous ones; here it selects none.
func selectorOf(spec *v2alpha1.IPPoolSpec) *Selector {
	if spec.PodSelector == nil && spec.NamespaceSelector == nil {
		return nil
	}
	s := &Selector{source: [2]*slimmetav1.LabelSelector{spec.PodSelector, spec.NamespaceSelector}}
	for _, part := range []struct {
		from *slimmetav1.LabelSelector
		to   *slimlabels.Selector
	}{{spec.PodSelector, &s.pod}, {spec.NamespaceSelector, &s.namespace}} {
		if part.from == nil {
			continue
		}
		compiled, err := slimmetav1.LabelSelectorAsSelector(part.from)
		if err != nil {
			return nil
		}
		*part.to = compiled
	}
	return s
}

// Same reports whether two selectors, which may be nil, select the same pods.
func (s *Selector) Same(other *Selector) bool {
	if s == nil || other == nil {
		return s == other
	}
	return equality.Semantic.DeepEqual(s.source, other.source)
}

// ForOwner returns the selector of the pods of an owner.
func ForOwner(owner string) *slimmetav1.LabelSelector {
	namespace, key, value := crd.SplitOwner(owner)
	return &slimmetav1.LabelSelector{MatchLabels: map[string]string{podNamespaceLabel: namespace, cmp.Or(key, podNameLabel): value}}
}

// Owner returns the owner that ForOwner's selector is for; "": it is another selector.
func (s *Selector) Owner() string {
	if s == nil || s.source[0] == nil || s.source[1] != nil {
		return ""
	}
	match := s.source[0].MatchLabels
	namespace := match[podNamespaceLabel]
	if len(match) != 2 || len(s.source[0].MatchExpressions) > 0 || namespace == "" {
		return ""
	}
	if name := match[podNameLabel]; name != "" {
		return crd.OwnerByName(namespace, name)
	}
	for key, value := range match {
		if key != podNamespaceLabel && value != "" {
			return crd.OwnerByLabel(namespace, key, value)
		}
	}
	return ""
}

// Picks reports whether the selector, which may be nil, selects a pod
// (pkg/ipam/metadata/manager.go, GetIPPoolForPod, v1.20.1).
func (s *Selector) Picks(pod, namespace labels.Set) bool {
	return s != nil && (s.pod == nil || s.pod.Matches(pod)) && (s.namespace == nil || s.namespace.Matches(namespace))
}

// PodLabels returns the labels of a pod that selectors match.
func PodLabels(namespace, name string, podLabels map[string]string) labels.Set {
	set := maps.Clone(podLabels)
	if set == nil {
		set = map[string]string{}
	}
	set[podNamespaceLabel] = namespace
	set[podNameLabel] = name
	return set
}
