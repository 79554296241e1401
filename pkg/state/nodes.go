package state

import (
	"math"

	corev1 "k8s.io/api/core/v1"
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
