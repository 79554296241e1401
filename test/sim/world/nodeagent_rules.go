package world

import (
	"cmp"
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
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

// poolsOf returns the Cilium pools that the plugin takes addresses of for a pod. One that the node agent has not seen gets
// them of the default one while there is no other.
func (n *nodeAgent) poolsOf(pod client.Object) (pools [2]string) {
	node, err := n.store.Ready()
	if err != nil {
		return pools
	}
	for f, pool := range node.Pods[string(pod.GetUID())].Pools {
		pools[f] = cmp.Or(pool, crd.DefaultCiliumPool)
	}
	return pools
}

// checkPlugin checks that a pod gets addresses of open blocks of its Cilium pools.
func (r *writeRules) checkPlugin(m *machine, e *endpoint) {
	node, err := m.nodeAgent.store.Ready()
	r.mustNot(err)
	for _, addr := range e.addrs() {
		pool := e.pools[ipalloc.FamilyOf(addr)]
		isOf := func(b nodeipam.Block) bool {
			return b.CIDR.Contains(addr) && cmp.Or(b.Pool, crd.DefaultCiliumPool) == pool && !b.Closed
		}
		if !slices.ContainsFunc(node.Blocks, isOf) {
			r.violate(10, "%s of node %s got %s, which is in no open block of Cilium pool %q", e.owner(), m.name, addr, pool)
		}
	}
}

// checkChoicesRest checks at rest that the node agent chooses the Cilium pools that Cilium's agent would.
func (r *settledRules) checkChoicesRest(when string, m *machine) {
	node, err := m.nodeAgent.store.Ready()
	if err != nil {
		return
	}
	for _, pod := range list[corev1.Pod](r.api, KindPod) {
		if pod.Spec.NodeName != m.name || pod.Spec.HostNetwork {
			continue
		}
		want, ok := m.askedBy(pod)
		has, known := node.Pods[string(pod.UID)]
		if (!known && !node.OnlyDefault) || ok != (has.Refused == "") {
			r.violate(10, "%s: %s of node %s: the node agent knows it: %t; refused: %q", when, keyOf(pod), m.name, known, has.Refused)
			continue
		}
		for _, family := range m.families {
			f := familyOf(family)
			if ok && cmp.Or(has.Pools[f], crd.DefaultCiliumPool) != want[f] {
				r.violate(10, "%s: %s of node %s asks for Cilium pool %q, and the node agent chose %q", when, keyOf(pod), m.name, want[f], has.Pools[f])
			}
		}
	}
}

// isClosed reports whether an address is in a block that gives none to new pods.
func (q *queries) isClosed(cn *ciliumv2.CiliumNode, addr netip.Addr) bool {
	return q.delegated() && slices.ContainsFunc(whole.Entries(cn), func(e whole.Entry) bool { return e.Parked && e.CIDR.Contains(addr) })
}
