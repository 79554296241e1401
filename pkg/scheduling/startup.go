package scheduling

import (
	"cmp"
	"slices"

	ciliumdefaults "github.com/cilium/cilium/pkg/defaults"
	corev1 "k8s.io/api/core/v1"
)

// WithoutStartupTaints returns a Node without the taints that it loses as it starts to offer addresses,
// so that it grows for unscheduled pods by then. It changes only Nodes with ShortageTaint,
// because only these keep pods off until they have grown.
func (c *Offering) WithoutStartupTaints(node *corev1.Node) *corev1.Node {
	isShortage := func(t corev1.Taint) bool { return t.Key == c.State.ShortageTaint }
	if c.State.ShortageTaint == "" || !slices.ContainsFunc(node.Spec.Taints, isShortage) {
		return node
	}
	offers := false
	for _, offer := range OffersIn(node.Status.Allocatable) {
		offers = offers || max(offer[0], offer[1]) > 0
	}
	notReady := cmp.Or(c.State.Cilium.Get().Setting(node.Labels, "agent-not-ready-taint-key"), ciliumdefaults.AgentNotReadyNodeTaint)
	isStarting := func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady || t.Key == notReady }
	started := *node
	started.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return isShortage(t) || !offers && (c.State.StartupTaints[t.Key] || isStarting(t))
	})
	return &started
}
