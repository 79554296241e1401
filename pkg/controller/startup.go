package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// AwaitsLabels is why a node does not get its first block yet, "": it may. Labels
// choose the pool, and the agent's own addresses keep the first block for as long as
// the node lives, so the operator waits while a taint says that labels are still to
// come. It does not wait where the node holds a block, or where its CiliumNode,
// which may be nil, names addresses already: its pods have to go on.
func (o *Observer) AwaitsLabels(node *corev1.Node, view *ciliumnode.View, blocks int) string {
	if node == nil || blocks > 0 || o.optedOut(node) {
		return ""
	}
	taint := crd.StartupTaint(node, o.StartupTaints)
	if taint == "" || view != nil && len(view.Named())+len(view.Odd) > 0 {
		return ""
	}
	return "its first block waits until the taint " + taint + " is gone, as labels that choose its pool may still come"
}

// awaitsLabels is AwaitsLabels of a node as observed. A CiliumNode that was deleted
// counts as it was.
func (r *NodeReconciler) awaitsLabels(o *observation) string {
	view := o.view
	if last := r.Ledger.LastNode(o.name); view == nil && o.node != nil && last != nil && last.OwnedBy(o.node) {
		view = last.View
	}
	return r.AwaitsLabels(o.node, view, len(o.blocks))
}

// tellAwaited reports once that a node waits for its labels, and in the log when it
// no longer does.
func (r *NodeReconciler) tellAwaited(ctx context.Context, o *observation) {
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
