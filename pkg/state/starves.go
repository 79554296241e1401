package state

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Starves reports whether a Node's condition says that its pods wait for a block, and that no
// pool has one. A restarted operator knows it at once.
func Starves(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeAddressShortage && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.NodePoolsExhausted
	})
}
