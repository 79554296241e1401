package world

import (
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

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
func (w *World) Due() time.Time { return w.next() }

// HasAddress reports whether a pod of a node has its addresses.
func (w *World) HasAddress(node, slot string) bool {
	m := w.machine(node)
	e, pod := m.endpoints[slot], m.podObject(slot)
	return e != nil && pod != nil && pod.GetUID() == e.pod.GetUID()
}

// BlockOf returns the name of the block of a pod's IPv4 address; "": none.
func (w *World) BlockOf(node, slot string) string {
	e := w.machine(node).endpoints[slot]
	if e == nil {
		return ""
	}
	for _, name := range w.api.Keys(KindBlock) {
		cidr, err := netip.ParsePrefix(w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock).Spec.CIDR)
		if err == nil && cidr.Contains(e.v4) {
			return name
		}
	}
	return ""
}
