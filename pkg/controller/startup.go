package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// awaitsLabels is AwaitsLabels of a node as observed. A CiliumNode that was deleted
// counts as it was.
func (r *NodeReconciler) awaitsLabels(o *observation) string {
	view := o.view
	if last := r.Ledger.LastCiliumNode(o.name); view == nil && o.node != nil && last != nil && last.OwnedBy(o.node) {
		view = last.View
	}
	return r.AwaitsLabels(o.node, view, len(o.blocks))
}

// reportAwaited reports once that a node waits for its labels, and in the log when it
// no longer does.
func (r *NodeReconciler) reportAwaited(ctx context.Context, o *observation) {
	if o.node == nil || r.Paused {
		return
	}
	switch news := r.Events.awaitsLabels(o.node, o.awaits); {
	case news && o.awaits != "":
		log.FromContext(ctx).Info("the node waits for its first block", "reason", o.awaits)
	case news:
		log.FromContext(ctx).Info("the node no longer waits for its first block: its startup taints are gone")
	}
}
