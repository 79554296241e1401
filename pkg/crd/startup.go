package crd

import corev1 "k8s.io/api/core/v1"

// taintUninitialized is on a Node from its registration until a cloud controller
// manager has set its zone, region and other labels (k8s.io/cloud-provider/api,
// TaintExternalCloudProvider).
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// DefaultStartupTaints are the keys of taints that say that the labels of a Node
// are not final, where no flag names others.
func DefaultStartupTaints() []string { return []string{taintUninitialized} }

// StartupTaint is the key of the first taint of a Node that is among keys, whatever
// its effect; "": it has none.
func StartupTaint(node *corev1.Node, keys map[string]bool) string {
	for _, taint := range node.Spec.Taints {
		if keys[taint.Key] {
			return taint.Key
		}
	}
	return ""
}
