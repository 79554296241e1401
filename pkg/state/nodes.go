package state

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// MaxPods returns the number of pods that the node's kubelet admits: status.allocatable.pods, or
// else capacity.pods. 0: the Node specifies neither.
func MaxPods(n *corev1.Node) int {
	if n == nil {
		return 0
	}
	for _, list := range []corev1.ResourceList{n.Status.Allocatable, n.Status.Capacity} {
		if pods := list[corev1.ResourcePods]; pods.Sign() > 0 {
			return int(min(pods.Value(), math.MaxInt32))
		}
	}
	return 0
}

// ShortageOf returns the message of a Node's condition that its pods lack addresses; "": they do not. node may be nil.
func ShortageOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.NodeAddressShortage && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// Starves reports whether a Node's condition says that its pods wait for a block, and that no
// pool has one. A restarted operator knows it at once.
func Starves(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeAddressShortage && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.NodePoolsExhausted
	})
}
