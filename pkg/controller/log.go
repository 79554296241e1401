package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// logPlan logs a decision and its inputs once, although every reconcile repeats it for
// a node whose writes conflict or that cannot get addresses.
func (r *NodeReconciler) logPlan(ctx context.Context, fo *state.Share, p expand.Plan) {
	line := ""
	if !p.Empty() {
		line = p.String()
	}
	again := r.loggedBefore(p.Node, fo, line)
	if line == "" {
		return
	}
	level := 0
	if again {
		level = 1
	}
	about := []any{"family", p.Family.String()}
	if fo.CiliumPool != "" {
		about = append(about, "ciliumPool", fo.CiliumPool)
	}
	log.FromContext(ctx).V(level).Info("decided", append(about, "needs", p.Demand, "has", p.Capacity, "plan", line)...)
}

// loggedBefore records a plan, "" for none, and reports whether it repeats the last
// one.
func (r *NodeReconciler) loggedBefore(node string, share *state.Share, line string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nodes[node]; line == "" && (n == nil || n.shares[share.CiliumPool] == nil) {
		return false
	}
	s := r.shareOf(node, share.CiliumPool)
	before := s.logged[share.Family] == line
	s.logged[share.Family] = line
	return before
}
