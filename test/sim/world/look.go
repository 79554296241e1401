package world

import (
	"net/netip"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
)

// Leader returns the operator that holds the lease; "": none does.
func (w *World) Leader() string {
	if w.lease.holder == nil {
		return ""
	}
	return w.lease.holder.name
}

// Runs reports whether an operator's process is up and not paused.
func (w *World) Runs(operator string) bool { return w.operator(operator).running() }

// InHand returns the call that a reconcile is about to send, such as "patch CiliumNode n1"; "":
// it is not in progress. Reconciles are named as in actions.
func (w *World) InHand(operator, reconcile string) string {
	if f := w.operator(operator).flight(reconcile); f != nil {
		return f.pending.String()
	}
	return ""
}

// Assigned returns the CIDRs that are assigned to a node's agent.
func (w *World) Assigned(node string) []netip.Prefix {
	if w.fixed() {
		return podCIDRsOf(w.api.Get(KindNode, node))
	}
	if cn, ok := w.api.Get(KindCiliumNode, node).(*ciliumv2.CiliumNode); ok {
		return w.listOf(cn)
	}
	return nil
}
