package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// logPlan logs a decision and its inputs once, although every reconcile repeats it for
// a node whose writes conflict or that cannot get addresses.
func (r *NodeReconciler) logPlan(ctx context.Context, fo *state.Share, p expand.Plan) {
	line := ""
	if !p.Empty() {
		line = p.String()
	}
	again := r.loggedBefore(fo.Key(p.Node), p.Family, line)
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
func (r *NodeReconciler) loggedBefore(node string, f ipalloc.Family, line string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := r.said[node]
	if said == nil {
		if line == "" {
			return false
		}
		if r.said == nil {
			r.said = map[string]*[2]string{}
		}
		said = &[2]string{}
		r.said[node] = said
	}
	before := said[f] == line
	said[f] = line
	if *said == ([2]string{}) {
		delete(r.said, node)
	}
	return before
}
