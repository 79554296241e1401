package world

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
)

// endMove continues the migration from wherever chance left it, and brings each node to one of
// two ends: in crd mode with its migration finished, or back in its old mode. Whatever was
// killed on the way, the same commands lead there.
func (mg *migration) endMove() bool {
	if mg.cfg.Move == nil {
		return true
	}
	mg.users.unpause()
	defer mg.quiescence.endFaults()()
	mg.mover.die()
	back := mg.cfg.Move.From != adopt.CRD && mg.pick("back", 1, 2) == 0
	for _, m := range mg.machines {
		if (back || mg.returning(m.name)) && mg.takeBack(m) {
			continue
		}
		if len(mg.Violations) > 0 || !mg.moveOn(m) {
			return false
		}
	}
	return true
}

// migrate runs a command to its end and returns its output.
func (mg *migration) migrate(command string) string {
	mg.Do(Action{Migrate, people, command})
	for range mg.restWithin() {
		if !mg.mover.busy() {
			return mg.mover.out.String() + mg.mover.err.String()
		}
		mg.quiescence.goOnOnce(func() bool { return false })
	}
	mg.violate(9, "migrate %s does not end", command)
	return ""
}

// takeBack takes a node back to its old mode. It returns false if that mode cannot express the
// node's blocks.
func (mg *migration) takeBack(m *machine) bool {
	for range 6 {
		said := mg.migrate("abort/" + m.name)
		if len(mg.Violations) > 0 {
			return false
		}
		switch {
		case mg.mover.code == 0 && m.mode != adopt.None:
			mg.configure(m, "old")
			return true
		case strings.Contains(said, "nothing to go back from") && m.served:
			return false // it was finished
		case mg.mover.code == 0 && !m.served, strings.Contains(said, "is ready to go back"),
			strings.Contains(said, "would start in it"), strings.Contains(said, "has not been Ready") && !m.served:
			mg.configure(m, "old")
			mg.refill(m)
		case strings.Contains(said, "has not been Ready"):
		case strings.Contains(said, "stays: "):
			if mg.fitsOld(m) {
				mg.violate(9, "migrate abort refuses node %s, and its old mode can express all that it has: %s", m.name, said)
			}
			return false
		default:
			mg.violate(9, "migrate abort of node %s ended with %d: %s", m.name, mg.mover.code, said)
			return false
		}
		mg.Quiesce(mg.restWithin())
	}
	mg.violate(9, "node %s cannot be taken back: %s%s", m.name, mg.mover.out.String(), mg.mover.err.String())
	return false
}

// fitsOld reports whether a node's old mode can express its blocks: every address in use lies in a
// block, and, except for multi-pool mode, there is one block per family, in service, that the node
// came with and that is the only one in podCIDRs.
func (mg *migration) fitsOld(m *machine) bool {
	var held []netip.Prefix
	for _, b := range mg.Blocks() {
		if b.Spec.NodeName != m.name {
			continue
		}
		cidr := cidrOf(b)
		second := slices.ContainsFunc(held, func(p netip.Prefix) bool { return sameFamily(p, cidr) })
		held = append(held, cidr)
		if mg.cfg.Move.From != adopt.MultiPool && (b.Labels[v1alpha1.AdoptedLabel] == "" || phaseOf(b) != "" || second) {
			return false
		}
	}
	cn := mg.CiliumNode(m.name)
	if cn == nil {
		return false
	}
	for _, addr := range mg.usedOn(m, cn) {
		if !slices.ContainsFunc(held, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return false
		}
	}
	return mg.cfg.Move.From == adopt.MultiPool ||
		!slices.ContainsFunc(cn.Spec.IPAM.PodCIDRs, func(p iputil.Prefix) bool { return !slices.Contains(held, p.Prefix) })
}

// usedOn returns the addresses that anything reports as in use on a node.
func (mg *migration) usedOn(m *machine, cn *ciliumv2.CiliumNode) []netip.Addr {
	out := slices.Collect(maps.Values(m.router))
	for _, e := range m.endpoints {
		out = append(out, e.addrs()...)
	}
	said := slices.Collect(maps.Keys(cn.Status.IPAM.Used))
	for _, slot := range mg.workload.slots {
		if pod := m.kubelet.podObject(slot); pod != nil {
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
func (mg *migration) moveOn(m *machine) bool {
	said := mg.migrate("start/" + m.name)
	if strings.Contains(said, "AddressOutside") { // of a pod that is just going: only that leaves one
		mg.Quiesce(mg.restWithin())
		said = mg.migrate("start/" + m.name)
	}
	if mg.mover.code != 0 {
		mg.violate(9, "migrate start of node %s ended with %d: %s", m.name, mg.mover.code, said)
		return false
	}
	mg.configure(m, "crd")
	for range 3 {
		if mg.Quiesce(mg.restWithin()); len(mg.Violations) > 0 {
			return false
		}
		if said = mg.migrate("finish/" + m.name); mg.mover.code == 0 {
			mg.checkFinished(m)
			return true
		}
	}
	mg.violate(9, "migrate finish of node %s ended with %d: %s", m.name, mg.mover.code, said)
	return false
}

// checkFinished checks that no trace of the other IPAM is left.
func (mg *migration) checkFinished(m *machine) {
	for _, b := range mg.Blocks() {
		if b.Spec.NodeName == m.name && b.Labels[v1alpha1.AdoptedLabel] != "" {
			mg.violate(9, "block %s still has the label %s, and the move of node %s is finished", b.Name, v1alpha1.AdoptedLabel, m.name)
		}
	}
	if cn, ok := mg.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode); ok && len(given(cn, adopt.MultiPool)) > 0 {
		mg.violate(9, "node %s still has what multi-pool mode gave it, and its move is finished", m.name)
	}
	if node := mg.api.Get(KindNode, m.name); node != nil && len(node.GetAnnotations()) > 0 {
		mg.violate(9, "Node %s still has annotations: %v", m.name, node.GetAnnotations())
	}
}
