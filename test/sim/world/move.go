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

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Move is another IPAM that serves the nodes when a world begins, and from which they migrate
// with kubectl cilium-pool migrate.
type Move struct {
	// From is its mode: one of Cilium's, or adopt.CRD for pools filled by hand.
	From adopt.Source
	// Given are the CIDRs of each node. Of pools filled by hand, all addresses of these except
	// the first and the last are in the pool.
	Given [][]netip.Prefix
	// Pools names the Cilium pools of those that are not of the default one, in multi-pool mode.
	Pools map[netip.Prefix]string
}

// beginElsewhere creates what the other IPAM has created for a node.
func (w *World) beginElsewhere(m *machine, cidrs []netip.Prefix) {
	node := w.api.Get(KindNode, m.name).DeepCopyObject().(*corev1.Node)
	cn := &ciliumv2.CiliumNode{}
	cn.Name, cn.OwnerReferences = m.name, ownerOf(node)
	switch w.cfg.Move.From {
	case adopt.CRD:
		cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
		for _, p := range cidrs {
			for addr := p.Addr().Next(); p.Contains(addr.Next()); addr = addr.Next() {
				cn.Spec.IPAM.Pool[addr.String()] = ipamtypes.AllocationIP{}
			}
		}
	case adopt.MultiPool:
		var list []listed
		for _, p := range cidrs {
			list = append(list, listed{cmp.Or(w.cfg.Move.Pools[p], crd.DefaultCiliumPool), p})
		}
		cn.Spec.IPAM.Pools.Allocated = allocatedOf(list)
	case adopt.Kubernetes:
		for _, p := range firstOfEach(cidrs) {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
		}
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		w.must(w.api.Update(node, false))
		fallthrough
	default:
		for _, p := range firstOfEach(cidrs) {
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(p))
		}
	}
	if w.cfg.Move.From != adopt.CRD {
		m.starts, m.mode = w.cfg.Move.From, w.cfg.Move.From
	}
	w.must(w.api.Create(cn))
}

// isOfAnotherPool reports whether a pod that was created in crd mode has an address of a CIDR
// that the node's old list has for a Cilium pool other than the default one (docs/migration.md).
func (m *machine) isOfAnotherPool(e *endpoint, addr netip.Addr) bool {
	return m.w.cfg.Move != nil && m.whole != nil && slices.ContainsFunc(listedIn(m.seen), func(l listed) bool {
		return l.cidr.Contains(addr) && l.pool == m.w.cfg.Move.Pools[l.cidr] && e.pools[ipalloc.FamilyOf(addr)] == crd.DefaultCiliumPool
	})
}

// refill assigns CIDRs of both pools to a node that returns to multi-pool mode, as
// cilium-operator does: all that the node has may be of one pool, or in use.
func (w *World) refill(m *machine) {
	cn, ok := w.api.Get(KindCiliumNode, m.name).DeepCopyObject().(*ciliumv2.CiliumNode)
	list := entriesOf(cn)
	for i, pool := range sortedKeys(w.cfg.Reserve) {
		for _, text := range []string{"10.9.%s.%d/29", "fd09::%s0%d/125"}[:len(m.families)] {
			if l := (listed{pool, netip.MustParsePrefix(fmt.Sprintf(text, m.name[1:], 8*i))}); !slices.Contains(list, l) {
				list = append(list, l)
			}
		}
	}
	if cn.Spec.IPAM.Pools.Allocated = allocatedOf(list); ok && w.cfg.Move.From == adopt.MultiPool {
		w.must(w.api.Update(cn, false))
	}
}

// enableMove enables what users do with a node that migrates.
func (w *World) enableMove(m *machine) {
	if !w.moves(m) {
		return
	}
	if m.mode != m.starts && m.phase != down {
		w.can(AgentRollout, m.name, "")
	}
	switch {
	case w.mover.busy():
	case m.starts != adopt.None && !w.returning(m.name):
		w.can(Configure, m.name, "crd")
	case m.starts == adopt.None && (!m.served || w.mover.ready[m.name] && w.returning(m.name) && w.keptOff(m.name)):
		w.can(Configure, m.name, "old")
	}
}

// moves reports whether an agent can run in a mode other than crd.
func (w *World) moves(m *machine) bool {
	return w.cfg.Move != nil && w.cfg.Move.From != adopt.CRD
}

// configure sets the mode in which the agent of a node starts next. An agent that waits in crd
// mode is restarted at the same time, because it could still begin to serve.
func (w *World) configure(m *machine, what string) {
	if m.starts = adopt.None; what == "old" {
		m.starts = w.cfg.Move.From
		if m.mode == adopt.None && !m.served && m.phase != down {
			w.doAgent(AgentRollout, m)
		}
	}
}

// keptOff reports whether all operators know that they must leave a node alone, and have no
// write for it in hand. An operator that learns it only after the node's agent has restarted is
// outside what we promise: only time protects against that.
func (w *World) keptOff(name string) bool {
	for _, o := range w.operators {
		if !o.up {
			continue
		}
		if o.flight("node/"+name) != nil {
			return false
		}
		for _, s := range o.streams {
			if _, more := s.next(w.api); s.kind == KindNode && (more || len(s.undelivered) > 0) {
				return false
			}
		}
	}
	return true
}

// returning reports whether a node is on its way back.
func (w *World) returning(name string) bool {
	node := w.api.Get(KindNode, name)
	return node != nil && node.GetAnnotations()[v1alpha1.ReturningAnnotation] != ""
}

// countAdopted counts a block that migrate has created.
func (w *World) countAdopted(v Version) {
	b, _ := v.New.(*v1alpha1.PodIPBlock)
	if v.Old == nil && b != nil && b.Labels[v1alpha1.AdoptedLabel] != "" && netip.MustParsePrefix(b.Spec.CIDR).Addr().Is6() {
		w.Counts.Did["adopt IPv6"]++
	}
}

// elsewhere reports whether the agent of a node has run only in its old mode since the world
// began, or since the node was taken back.
func (m *machine) elsewhere() bool { return m.mode != adopt.None && !m.moved }

// holdElsewhere checks what an operator writes about a node whose agent does not read it: only
// the addresses of adopted blocks.
func (w *World) holdElsewhere(v Version) {
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	m := w.machine(v.Key)
	if w.cfg.Move == nil || !m.elsewhere() {
		return
	}
	if old == nil || now == nil {
		w.violate(7, "CiliumNode %s was made or deleted, and another IPAM serves the node", v.Key)
		return
	}
	for key := range old.Spec.IPAM.Pool {
		if _, still := now.Spec.IPAM.Pool[key]; !still {
			w.violate(7, "%s left the pool of node %s, which another IPAM serves", key, v.Key)
		}
	}
	for key := range now.Spec.IPAM.Pool {
		addr, err := netip.ParseAddr(key)
		if _, was := old.Spec.IPAM.Pool[key]; err == nil && !was && !w.inAdoptedBlock(m.name, addr) {
			w.violate(7, "%s was published on node %s, which another IPAM serves, and is of no block that was adopted", key, v.Key)
		}
	}
	for key := range now.Status.IPAM.ReleaseIPs {
		if _, was := old.Status.IPAM.ReleaseIPs[key]; !was {
			w.violate(7, "%s was marked for release on node %s, which another IPAM serves", key, v.Key)
		}
	}
	if before, after := given(old, w.cfg.Move.From), given(now, w.cfg.Move.From); !slices.Equal(before, after) || !slices.Equal(entriesOf(old), entriesOf(now)) {
		w.violate(7, "node %s was given %v by another IPAM, and now %v", v.Key, before, after)
	}
}

func (w *World) inAdoptedBlock(node string, addr netip.Addr) bool {
	for _, name := range w.api.Keys(KindBlock) {
		b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if b.Spec.NodeName == node && b.Labels[v1alpha1.AdoptedLabel] != "" && netip.MustParsePrefix(b.Spec.CIDR).Contains(addr) {
			return true
		}
	}
	return false
}

// holdClaimElsewhere checks that an operator claims nothing that another IPAM has assigned to a
// node, and nothing for such a node.
func (w *World) holdClaimElsewhere(b *v1alpha1.PodIPBlock) {
	if w.cfg.Move == nil {
		return
	}
	cidr := netip.MustParsePrefix(b.Spec.CIDR)
	view := w.writer.parts.Node.Ledger.CiliumNode(b.Spec.NodeName)
	ran := view != nil && len(view.Used) > 0 // in crd mode, when last seen
	if m := w.machine(b.Spec.NodeName); m.elsewhere() && !ran {
		w.violate(7, "block %s was claimed for node %s, which another IPAM serves", b.Name, m.name)
	}
	for _, m := range w.machines {
		cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
		if !ok || m.name == b.Spec.NodeName {
			continue
		}
		for _, p := range append(given(cn, adopt.MultiPool), given(cn, adopt.ClusterPool)...) {
			if p.Overlaps(cidr) {
				w.violate(1, "block %s was claimed for node %s, and another IPAM has given %s to node %s", b.Name, b.Spec.NodeName, p, m.name)
			}
		}
	}
}

// holdBack checks a node that, according to migrate, is back in its old mode.
func (w *World) holdBack(when string, m *machine) {
	cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	if !ok {
		return
	}
	for _, key := range sortedKeys(cn.Spec.IPAM.Pool) {
		w.violate(7, "%s: %s is in the pool of node %s, which is back in %s mode", when, key, m.name, m.mode)
	}
	for _, name := range w.api.Keys(KindBlock) {
		if b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock); b.Spec.NodeName == m.name && b.Labels[v1alpha1.AdoptedLabel] != "" {
			w.violate(7, "%s: node %s, which is back in %s mode, has adopted block %s", when, m.name, m.mode, name)
		}
	}
	cidrs := given(cn, m.mode)
	for _, slot := range sortedKeys(m.endpoints) {
		for _, addr := range m.endpoints[slot].addrs() {
			if !slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Contains(addr) }) {
				w.violate(2, "%s: pod %s on node %s has %s, and the node is given %v", when, slot, m.name, addr, cidrs)
			}
		}
	}
}
