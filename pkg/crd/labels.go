package crd

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubeletLabels returns the label keys of a selector, sorted, that a kubelet may set on
// its own Node: with these a compromised node chooses its own pools. A nil selector
// selects all nodes, by no label.
func KubeletLabels(selector *metav1.LabelSelector) []string {
	if selector == nil {
		return nil
	}
	var keys []string
	for key := range selector.MatchLabels {
		keys = append(keys, key)
	}
	for _, e := range selector.MatchExpressions {
		keys = append(keys, e.Key)
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !kubeletMaySet(key) })
	slices.Sort(keys)
	return slices.Compact(keys)
}

// kubeletMaySet reports whether the admission plugin NodeRestriction lets a kubelet
// set a label (Kubernetes v1.36, plugin/pkg/admission/noderestriction/admission.go,
// getForbiddenLabels, and kubelet/pkg/apis/well_known_labels.go).
func kubeletMaySet(key string) bool {
	domain, _, hasDomain := strings.Cut(key, "/")
	if !hasDomain || !isIn(domain, "kubernetes.io") && !isIn(domain, "k8s.io") {
		return true
	}
	if isIn(domain, "node-restriction.kubernetes.io") {
		return false
	}
	switch key {
	case "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type",
		"topology.kubernetes.io/zone", "topology.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region":
		return true
	}
	return isIn(domain, "kubelet.kubernetes.io") || isIn(domain, "node.kubernetes.io")
}

// isIn reports whether a domain is another one or lies below it.
func isIn(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// taintUninitialized is on a Node from its registration until a cloud controller
// manager has set its zone, region and other labels (k8s.io/cloud-provider/api,
// TaintExternalCloudProvider).
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// DefaultStartupTaints are the keys of taints that mark a Node's labels as not final,
// unless a flag names others.
func DefaultStartupTaints() []string { return []string{taintUninitialized} }

// StartupTaint returns the key of a Node's first taint that is among keys, with any effect; "": it
// has none.
func StartupTaint(node *corev1.Node, keys map[string]bool) string {
	for _, taint := range node.Spec.Taints {
		if keys[taint.Key] {
			return taint.Key
		}
	}
	return ""
}
