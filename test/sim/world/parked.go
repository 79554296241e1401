package world

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// parkedSuffix ends the names of the reserved pools under which blocks are parked.
const parkedSuffix = ".draining.cilium-pool.io"

// parkedIn returns the parked CIDRs of an agent's list.
func parkedIn(cn *ciliumv2.CiliumNode) []netip.Prefix {
	var out []netip.Prefix
	for _, l := range entriesOf(cn) {
		if strings.HasSuffix(l.pool, parkedSuffix) {
			out = append(out, l.cidr)
		}
	}
	return out
}

// keepsEntry reports whether the pool from which a CIDR was parked still has an entry.
func keepsEntry(old, now *ciliumv2.CiliumNode, cidr netip.Prefix) bool {
	for _, l := range entriesOf(old) {
		if l.cidr == cidr {
			return slices.ContainsFunc(now.Spec.IPAM.Pools.Allocated, func(e ipamtypes.IPAMPoolAllocation) bool { return e.Pool == l.pool })
		}
	}
	return false
}

// ownIn returns the agent's own addresses.
func ownIn(cn *ciliumv2.CiliumNode) []netip.Addr {
	var out []netip.Addr
	for _, a := range cn.Spec.Addresses {
		if addr, err := netip.ParseAddr(a.IP); err == nil && a.Type == addressing.NodeCiliumInternalIP {
			out = append(out, addr)
		}
	}
	return out
}

// lostParked reports that an agent saw the CIDR of an address parked when it
// started: it cannot restore the pod (docs/modes.md).
func (m *machine) lostParked(addr netip.Addr) bool {
	return m.seen != nil && slices.ContainsFunc(parkedIn(m.seen), func(p netip.Prefix) bool { return p.Contains(addr) })
}

// checkParkedRest checks at rest that no CIDR is parked, and that agents allocate from no draining
// block and keep no empty one.
func (r *settledRules) checkParkedRest(when string, m *machine, cn *ciliumv2.CiliumNode) {
	if parked := parkedIn(cn); len(parked) > 0 {
		r.violate(9, "%s: %v of node %s are parked", when, parked, m.name)
	}
	if !r.cfg.Settings.ParkBlocks || m.whole == nil || m.phase != serving {
		return
	}
	for _, l := range listedIn(cn) {
		b, ok := r.api.Get(KindBlock, crd.BlockName(l.cidr)).(*v1alpha1.PodIPBlock)
		if !ok || phaseOf(b) != v1alpha1.BlockDraining || r.modeRules.isLost(m, l.cidr) {
			continue
		}
		switch {
		case r.space.freeBlocks(m.name, l.cidr.Addr().Is4(), l.pool) <= r.closedTo(m, ipalloc.FamilyOf(l.cidr.Addr())): // no block could take its place
		case !m.whole.Uses(l.cidr):
			r.violate(9, "%s: block %s of node %s drains, is empty, and is still listed", when, b.Name, m.name)
		case !slices.Contains(m.whole.Closed(), l.cidr) && (b.Status.Closed == nil || r.hasNewer(m, l.cidr, b.Status.Closed.Since.Time)):
			r.violate(9, "%s: block %s of node %s drains, and its agent gives addresses of it to new pods", when, b.Name, m.name)
		}
	}
}

// lacksAddresses reports whether a pod of the machine has no address.
func (m *machine) lacksAddresses() bool {
	return slices.ContainsFunc(m.w.workload.slots, func(slot string) bool {
		pod := m.kubelet.podObject(slot)
		return pod != nil && !finished(pod) && m.endpoints[slot] == nil
	})
}

// hasNewer reports whether a pod with an address of a CIDR was created after a given time.
func (r *settledRules) hasNewer(m *machine, cidr netip.Prefix, since time.Time) bool {
	for _, e := range m.endpoints {
		if slices.ContainsFunc(e.addrs(), cidr.Contains) && e.pod.GetCreationTimestamp().After(since) {
			return true
		}
	}
	return false
}

// closedTo returns the number of CIDRs of a family without a block that are of no use to a node:
// its agent has closed them, or its last block of that CIDR says so. An agent that saw only the
// latest version of its list may have missed that, and the operator cannot know.
func (r *settledRules) closedTo(m *machine, f ipalloc.Family) int {
	if m.whole == nil { // its agent is down
		return 0
	}
	closed := m.whole.Closed()
	for _, v := range r.api.history[KindBlock] {
		b, ok := v.Old.(*v1alpha1.PodIPBlock)
		if ok && v.New == nil && b.Spec.NodeName == m.name && b.Status.Closed != nil && b.Status.Closed.Container == m.kubelet.container() {
			closed = append(closed, netip.MustParsePrefix(b.Spec.CIDR))
		}
	}
	slices.SortFunc(closed, netip.Prefix.Compare)
	n := 0
	for _, cidr := range slices.Compact(closed) {
		if ipalloc.FamilyOf(cidr.Addr()) == f && r.api.Get(KindBlock, crd.BlockName(cidr)) == nil {
			n++
		}
	}
	return n
}

// podsOf returns the addresses that the statuses of a node's pods named when the reconcile in
// progress began.
func (o *Operator) podsOf(node string) []netip.Addr {
	var out []netip.Addr
	if o.current != nil && o.current.name == node {
		for addr := range o.current.pods {
			out = append(out, addr)
		}
	}
	return out
}
