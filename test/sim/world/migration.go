package world

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// migration moves nodes into crd mode, or back, by kubectl cilium-pool migrate.
type migration struct {
	*World
	mover *mover // nil: users type no command
}

// Move is another IPAM that serves the nodes when a world begins, and from which they migrate
// with kubectl cilium-pool migrate.
type Move struct {
	// From is its mode: one of Cilium's, or adopt.CRD for pools that users filled.
	From adopt.Source
	// Given are the CIDRs of each node. Of pools that users filled, all addresses of these except
	// the first and the last are in the pool.
	Given [][]netip.Prefix
	// Pools names the Cilium pools of those that are not of the default one, in multi-pool mode.
	Pools map[netip.Prefix]string
}

// beginElsewhere creates the other IPAM's objects of a node.
func (mg *migration) beginElsewhere(m *machine, cidrs []netip.Prefix) {
	node := mg.api.Get(KindNode, m.name).DeepCopyObject().(*corev1.Node)
	cn := &ciliumv2.CiliumNode{}
	cn.Name, cn.OwnerReferences = m.name, ownerOf(node)
	switch mg.cfg.Move.From {
	case adopt.CRD:
		cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
		for _, p := range cidrs {
			for addr := p.Addr().Next(); p.Contains(addr.Next()); addr = addr.Next() {
				cn.Spec.IPAM.Pool[addr.String()] = ipamtypes.AllocationIP{}
			}
		}
	case adopt.MultiPool:
		var list []whole.Entry
		for _, p := range cidrs {
			list = append(list, whole.Entry{Pool: cmp.Or(mg.cfg.Move.Pools[p], crd.DefaultCiliumPool), CIDR: p})
		}
		cn.Spec.IPAM.Pools.Allocated = allocatedOf(list)
	case adopt.Kubernetes:
		for _, p := range firstOfEach(cidrs) {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
		}
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		mg.must(mg.api.Update(node, false))
		fallthrough
	default:
		for _, p := range firstOfEach(cidrs) {
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(p))
		}
	}
	if mg.cfg.Move.From != adopt.CRD {
		m.starts, m.mode = mg.cfg.Move.From, mg.cfg.Move.From
	}
	mg.must(mg.api.Create(cn))
}

// isOfAnotherPool reports whether a pod that was created in crd mode has an address of a CIDR
// that the node's old list has for a Cilium pool other than the default one (docs/migration.md).
func (m *machine) isOfAnotherPool(e *endpoint, addr netip.Addr) bool {
	return m.w.cfg.Move != nil && m.whole != nil && slices.ContainsFunc(listedIn(m.seen), func(l whole.Entry) bool {
		return l.CIDR.Contains(addr) && l.Pool == m.w.cfg.Move.Pools[l.CIDR] && e.pools[ipalloc.FamilyOf(addr)] == crd.DefaultCiliumPool
	})
}

// refill assigns CIDRs of both pools to a node that returns to multi-pool mode, as
// cilium-operator does: all that the node has may be of one pool, or in use.
func (mg *migration) refill(m *machine) {
	cn, ok := mg.api.Get(KindCiliumNode, m.name).DeepCopyObject().(*ciliumv2.CiliumNode)
	list := whole.Entries(cn)
	for i, pool := range sortedKeys(mg.cfg.Reserve) {
		for _, text := range []string{"10.9.%s.%d/29", "fd09::%s0%d/125"}[:len(m.families)] {
			if l := (whole.Entry{Pool: pool, CIDR: netip.MustParsePrefix(fmt.Sprintf(text, m.name[1:], 8*i))}); !slices.Contains(list, l) {
				list = append(list, l)
			}
		}
	}
	if cn.Spec.IPAM.Pools.Allocated = allocatedOf(list); ok && mg.cfg.Move.From == adopt.MultiPool {
		mg.must(mg.api.Update(cn, false))
	}
}

// enableMove enables the users' actions on a node that migrates.
func (mg *migration) enableMove(m *machine) {
	if !mg.moves() {
		return
	}
	if m.mode != m.starts && m.phase != down {
		mg.can(AgentRollout, m.name, "")
	}
	switch {
	case mg.mover.busy():
	case m.starts != adopt.None && !mg.returning(m.name):
		mg.can(Configure, m.name, "crd")
	case m.starts == adopt.None && (!m.served || mg.mover.ready[m.name] && mg.returning(m.name) && mg.keptOff(m.name)):
		mg.can(Configure, m.name, "old")
	}
}

// moves reports whether agents can run in a mode other than crd.
func (mg *migration) moves() bool {
	return mg.cfg.Move != nil && mg.cfg.Move.From != adopt.CRD
}

// configure sets the mode of a node's next agent. An agent that waits in crd mode is restarted at
// the same time, because it could still begin to serve.
func (mg *migration) configure(m *machine, what string) {
	if m.starts = adopt.None; what == "old" {
		m.starts = mg.cfg.Move.From
		if m.mode == adopt.None && !m.served && m.phase != down {
			mg.workload.doAgent(AgentRollout, m)
		}
	}
}

// keptOff reports whether all operators know that they must leave a node alone, and have no write
// for it in hand. An operator that learns it only after the node's agent has restarted is outside
// our promises: only time protects against that.
func (mg *migration) keptOff(name string) bool {
	for _, o := range mg.operators {
		if !o.up {
			continue
		}
		if o.flight("node/"+name) != nil {
			return false
		}
		for _, s := range o.streams {
			if _, more := s.next(mg.api); s.kind == KindNode && (more || len(s.undelivered) > 0) {
				return false
			}
		}
	}
	return true
}

// elsewhere reports whether the agent of a node has run only in its old mode since the world
// began, or since the node was taken back.
func (m *machine) elsewhere() bool { return m.mode != adopt.None && !m.moved }

// checkElsewhere checks an operator's write for a node with an agent of another mode: only the
// addresses of adopted blocks.
func (mg *migration) checkElsewhere(v Version) {
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	m := mg.machine(v.Key)
	if mg.cfg.Move == nil || !m.elsewhere() {
		return
	}
	if old == nil || now == nil {
		mg.violate(7, "CiliumNode %s was made or deleted, and another IPAM serves the node", v.Key)
		return
	}
	for key := range old.Spec.IPAM.Pool {
		if _, still := now.Spec.IPAM.Pool[key]; !still {
			mg.violate(7, "%s left the pool of node %s, which another IPAM serves", key, v.Key)
		}
	}
	for addr := range addresses(now.Spec.IPAM.Pool) {
		b := mg.blockWith(m.name, addr)
		if _, was := old.Spec.IPAM.Pool[addr.String()]; !was && (b == nil || b.Labels[v1alpha1.AdoptedLabel] == "") {
			mg.violate(7, "%s was published on node %s, which another IPAM serves, and is of no block that was adopted", addr, v.Key)
		}
	}
	for key := range now.Status.IPAM.ReleaseIPs {
		if _, was := old.Status.IPAM.ReleaseIPs[key]; !was {
			mg.violate(7, "%s was marked for release on node %s, which another IPAM serves", key, v.Key)
		}
	}
	if before, after := given(old, mg.cfg.Move.From), given(now, mg.cfg.Move.From); !slices.Equal(before, after) || !slices.Equal(whole.Entries(old), whole.Entries(now)) {
		mg.violate(7, "node %s was given %v by another IPAM, and now %v", v.Key, before, after)
	}
}

// checkClaimElsewhere checks that an operator claims no block of another IPAM's node, and none for
// such a node.
func (mg *migration) checkClaimElsewhere(b *v1alpha1.PodIPBlock) {
	if mg.cfg.Move == nil {
		return
	}
	cidr := cidrOf(b)
	view := mg.rules.writer.parts.Node.Cluster.Ledger.CiliumNode(b.Spec.NodeName)
	ran := view != nil && len(view.Used) > 0 // in crd mode, when last seen
	if m := mg.machine(b.Spec.NodeName); m.elsewhere() && !ran {
		mg.violate(7, "block %s was claimed for node %s, which another IPAM serves", b.Name, m.name)
	}
	for _, cn := range list[ciliumv2.CiliumNode](mg.api, KindCiliumNode) {
		for _, p := range append(given(cn, adopt.MultiPool), given(cn, adopt.ClusterPool)...) {
			if cn.Name != b.Spec.NodeName && p.Overlaps(cidr) {
				mg.violate(1, "block %s was claimed for node %s, and another IPAM has given %s to node %s", b.Name, b.Spec.NodeName, p, cn.Name)
			}
		}
	}
}

// checkBack checks a node that, according to migrate, is back in its old mode.
func (mg *migration) checkBack(when string, m *machine) {
	cn := mg.CiliumNode(m.name)
	if cn == nil {
		return
	}
	for _, key := range sortedKeys(cn.Spec.IPAM.Pool) {
		mg.violate(7, "%s: %s is in the pool of node %s, which is back in %s mode", when, key, m.name, m.mode)
	}
	for _, b := range mg.Blocks() {
		if b.Spec.NodeName == m.name && b.Labels[v1alpha1.AdoptedLabel] != "" {
			mg.violate(7, "%s: node %s, which is back in %s mode, has adopted block %s", when, m.name, m.mode, b.Name)
		}
	}
	cidrs := given(cn, m.mode)
	for _, slot := range sortedKeys(m.endpoints) {
		for _, addr := range m.endpoints[slot].addrs() {
			if !slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Contains(addr) }) {
				mg.violate(2, "%s: pod %s on node %s has %s, and the node is given %v", when, slot, m.name, addr, cidrs)
			}
		}
	}
}
