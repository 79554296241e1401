package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// reportAwaited reports once that a node waits for its labels, and logs when the wait
// is over.
func (r *NodeReconciler) reportAwaited(ctx context.Context, o *observation) {
	if o.Node == nil || r.Paused {
		return
	}
	switch news := r.Events.awaitsLabels(o.Node, o.Awaits); {
	case news && o.Awaits != "":
		log.FromContext(ctx).Info("the node waits for its first block", "reason", o.Awaits)
	case news:
		log.FromContext(ctx).Info("the node no longer waits for its first block: its startup taints are gone")
	}
}
