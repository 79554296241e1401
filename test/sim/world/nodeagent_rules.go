package world

import (
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// seeNodeAgent judges a node agent's write: it takes no block off the list in which a pod has an address.
func (r *writeRules) seeNodeAgent(v Version, change invariant.Change) {
	change.Writer = whole.NodeAgentWriter
	for _, f := range r.wholeJudge.Step(change) {
		r.violate(f.Rule, "%s: %s", f.Subject, f.Text)
	}
	r.judge.Take(change)
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	if old != nil && now != nil {
		r.checkPool(v.Key, old, now, true)
	}
}

// checkReportRest checks at rest that a CiliumNode shows the addresses that pods have, and no other.
func (r *settledRules) checkReportRest(when string, m *machine, cn *ciliumv2.CiliumNode) {
	used := map[netip.Addr]bool{}
	for addr := range addresses(cn.Status.IPAM.Used) {
		used[addr] = true
	}
	for _, slot := range sortedKeys(m.endpoints) {
		for _, addr := range m.endpoints[slot].addrs() {
			if !used[addr] {
				r.violate(9, "%s: %s of pod %s on node %s is not reported", when, addr, slot, m.name)
			}
			delete(used, addr)
		}
	}
	for addr := range used {
		r.violate(9, "%s: node %s reports %s, which no pod has", when, m.name, addr)
	}
}

// isClosed reports whether an address is in a block that gives none to new pods.
func (q *queries) isClosed(cn *ciliumv2.CiliumNode, addr netip.Addr) bool {
	return q.delegated() && slices.ContainsFunc(whole.Entries(cn), func(e whole.Entry) bool { return e.Parked && e.CIDR.Contains(addr) })
}
