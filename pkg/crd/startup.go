package crd

import corev1 "k8s.io/api/core/v1"

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
