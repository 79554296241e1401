package controller

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// behind reports whether the caches lag behind this process's last write to the
// CiliumNode. A deleted CiliumNode may never appear in them again.
func (r *NodeReconciler) behind(ctx context.Context, o *observation) (bool, error) {
	if !r.Ledger.Behind(o.Name, o.version()) {
		return false, nil
	}
	if o.CiliumNode != nil {
		return true, nil
	}
	live, err := r.CiliumNodes.Live(ctx, o.Name)
	if err != nil || live != nil {
		return true, err
	}
	r.Ledger.ForgetAssumedCiliumNode(o.Name)
	return false, nil
}

// lagging counts a reconcile skipped because the caches lag. A brief lag is normal; one
// that persists is logged once.
func (r *NodeReconciler) lagging(ctx context.Context, o *observation) {
	r.Metrics.behind.WithLabelValues("CiliumNode").Inc()
	if r.staysBehind(o.Name, r.Clock.Now()) {
		log.FromContext(ctx).Info("the watch has not shown the operator's own last write to the CiliumNode: nothing is decided for the node until it does",
			"shown", o.version(), "after", behindRetry.String())
	}
}

// staysBehind reports, once, that the caches have lagged for longer than one retry.
func (r *NodeReconciler) staysBehind(node string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.stateOf(node)
	switch {
	case n.behindSince.IsZero():
		n.behindSince = now
	case !n.behindLogged && now.Sub(n.behindSince) >= behindRetry:
		n.behindLogged = true
		return true
	}
	return false
}

func (r *NodeReconciler) caughtUp(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nodes[node]; n != nil {
		n.behindSince, n.behindLogged = time.Time{}, false
	}
}
