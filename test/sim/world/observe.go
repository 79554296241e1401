package world

import (
	"time"
)

// Leader returns the operator that holds the lease; "": none does.
func (w *World) Leader() string {
	if w.processes.lease.holder == nil {
		return ""
	}
	return w.processes.lease.holder.name
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

// Writes reports whether an action is a write by an operator.
func (w *World) Writes(a Action) bool {
	o := w.operator(a.Who)
	if a.Verb != Call || o == nil || !o.up {
		return false
	}
	f := o.flight(a.What)
	return f != nil && f.pending.writes()
}

// Leads reports whether an operator runs and leads.
func (w *World) Leads(operator string) bool {
	o := w.operator(operator)
	return o != nil && o.running() && o.leads
}

// Synced reports whether a watch of an operator has delivered all of its first list.
func (w *World) Synced(operator, stream string) bool {
	o := w.operator(operator)
	s := o.stream(stream)
	return s != nil && s.synced()
}

// Due returns when something next comes due by time alone, or zero.
func (w *World) Due() time.Time { return w.clock.next() }

// HasAddress reports whether a pod of a node has its addresses.
func (w *World) HasAddress(node, slot string) bool {
	m := w.machine(node)
	e, pod := m.endpoints[slot], m.kubelet.podObject(slot)
	return e != nil && pod != nil && pod.GetUID() == e.pod.GetUID()
}

// BlockOf returns the name of the block of a pod's IPv4 address; "": none.
func (w *World) BlockOf(node, slot string) string {
	e := w.machine(node).endpoints[slot]
	if e == nil {
		return ""
	}
	for _, b := range w.Blocks() {
		if cidrOf(b).Contains(e.v4) {
			return b.Name
		}
	}
	return ""
}

// Serves reports whether the agent of a node accepts CNI ADDs.
func (w *World) Serves(node string) bool { return w.machine(node).phase == serving }

// Settled reports whether an operator considers the agent of a node settled.
func (w *World) Settled(operator, node string) bool {
	o := w.operator(operator)
	return o.up && o.agents.settled(node)
}
