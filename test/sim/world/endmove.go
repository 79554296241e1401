package world

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// endMove continues the migration from wherever chance left it, and brings each node to one of
// two ends: in crd mode with its migration finished, or back in its old mode. Whatever was
// killed on the way, the same commands lead there.
func (w *World) endMove() bool {
	if w.cfg.Move == nil {
		return true
	}
	defer w.endFaults()()
	w.mover.die()
	back := w.cfg.Move.From != adopt.CRD && w.pick("back", 1, 2) == 0
	for _, m := range w.machines {
		if (back || w.returning(m.name)) && w.takeBack(m) {
			continue
		}
		if len(w.Violations) > 0 || !w.moveOn(m) {
			return false
		}
	}
	return true
}

// endFaults ends pauses, and suspends faults until the returned function is called.
func (w *World) endFaults() (begin func()) {
	faults := w.cfg.Faults
	w.cfg.Faults = 0
	w.unpause()
	for _, o := range w.operators {
		o.frozen = false
	}
	w.pass(0) // who has lost the lead sees it
	return func() { w.cfg.Faults = faults }
}

// migrate runs a command to its end and returns its output.
func (w *World) migrate(command string) string {
	w.Do(Action{Migrate, people, command})
	for range w.restWithin() {
		if !w.mover.busy() {
			return w.mover.out.String() + w.mover.err.String()
		}
		if a, any := w.anyCalm(); any {
			w.Do(a)
			continue
		}
		d := time.Minute
		if next := w.next(); !next.IsZero() {
			d = min(d, next.Sub(w.now))
		}
		w.pass(d)
	}
	w.violate(9, "migrate %s does not end", command)
	return ""
}

// takeBack takes a node back to its old mode. It returns false if that mode cannot express what
// the node has.
func (w *World) takeBack(m *machine) bool {
	for range 6 {
		said := w.migrate("abort/" + m.name)
		if len(w.Violations) > 0 {
			return false
		}
		switch {
		case w.mover.code == 0 && m.mode != adopt.None:
			w.configure(m, "old")
			return true
		case strings.Contains(said, "nothing to go back from") && m.served:
			return false // it was finished
		case w.mover.code == 0 && !m.served, strings.Contains(said, "is ready to go back"),
			strings.Contains(said, "would start in it"), strings.Contains(said, "has not been Ready") && !m.served:
			w.configure(m, "old")
			w.refill(m)
		case strings.Contains(said, "has not been Ready"):
		case strings.Contains(said, "stays: "):
			if w.fitsOld(m) {
				w.violate(9, "migrate abort refuses node %s, and its old mode can express all that it has: %s", m.name, said)
			}
			return false
		default:
			w.violate(9, "migrate abort of node %s ended with %d: %s", m.name, w.mover.code, said)
			return false
		}
		w.Calm(w.restWithin())
	}
	w.violate(9, "node %s cannot be taken back: %s%s", m.name, w.mover.out.String(), w.mover.err.String())
	return false
}

// fitsOld reports whether a node's old mode can express what the node has: every address in use
// lies in a block, and, except for multi-pool mode, there is one block per family, in service,
// that the node came with and that is the only one in podCIDRs.
func (w *World) fitsOld(m *machine) bool {
	var held []netip.Prefix
	for _, name := range w.api.Keys(KindBlock) {
		b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if b.Spec.NodeName != m.name {
			continue
		}
		cidr := netip.MustParsePrefix(b.Spec.CIDR)
		second := slices.ContainsFunc(held, func(p netip.Prefix) bool { return sameFamily(p, cidr) })
		held = append(held, cidr)
		if w.cfg.Move.From != adopt.MultiPool && (b.Labels[v1alpha1.AdoptedLabel] == "" || phaseOf(b) != "" || second) {
			return false
		}
	}
	cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	if !ok {
		return false
	}
	for _, addr := range w.usedOn(m, cn) {
		if !slices.ContainsFunc(held, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return false
		}
	}
	return w.cfg.Move.From == adopt.MultiPool ||
		!slices.ContainsFunc(cn.Spec.IPAM.PodCIDRs, func(p iputil.Prefix) bool { return !slices.Contains(held, p.Prefix) })
}

// usedOn returns the addresses that anything reports as in use on a node.
func (w *World) usedOn(m *machine, cn *ciliumv2.CiliumNode) []netip.Addr {
	out := slices.Collect(maps.Values(m.router))
	for _, e := range m.endpoints {
		out = append(out, e.addrs()...)
	}
	said := slices.Collect(maps.Keys(cn.Status.IPAM.Used))
	for _, slot := range w.slots {
		if pod := m.podObject(slot); pod != nil {
			for _, ip := range pod.Status.PodIPs {
				said = append(said, ip.IP)
			}
		}
	}
	for _, s := range said {
		if addr, err := netip.ParseAddr(s); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

// moveOn brings a node into crd mode and finishes its migration.
func (w *World) moveOn(m *machine) bool {
	said := w.migrate("start/" + m.name)
	if strings.Contains(said, "AddressOutside") { // of a pod that is just going: nothing else leaves one
		w.Calm(w.restWithin())
		said = w.migrate("start/" + m.name)
	}
	if w.mover.code != 0 {
		w.violate(9, "migrate start of node %s ended with %d: %s", m.name, w.mover.code, said)
		return false
	}
	w.configure(m, "crd")
	for range 3 {
		if w.Calm(w.restWithin()); len(w.Violations) > 0 {
			return false
		}
		if said = w.migrate("finish/" + m.name); w.mover.code == 0 {
			w.holdFinished(m)
			return true
		}
	}
	w.violate(9, "migrate finish of node %s ended with %d: %s", m.name, w.mover.code, said)
	return false
}

// holdFinished checks that no trace of the other IPAM is left.
func (w *World) holdFinished(m *machine) {
	for _, name := range w.api.Keys(KindBlock) {
		if b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock); b.Spec.NodeName == m.name && b.Labels[v1alpha1.AdoptedLabel] != "" {
			w.violate(9, "block %s still has the label %s, and the move of node %s is finished", name, v1alpha1.AdoptedLabel, m.name)
		}
	}
	if cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode); ok && len(given(cn, adopt.MultiPool)) > 0 {
		w.violate(9, "node %s still has what multi-pool mode gave it, and its move is finished", m.name)
	}
	if node := w.api.Get(KindNode, m.name); node != nil && len(node.GetAnnotations()) > 0 {
		w.violate(9, "Node %s still has annotations: %v", m.name, node.GetAnnotations())
	}
}
