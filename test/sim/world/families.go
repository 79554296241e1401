package world

import (
	"net/netip"
	"slices"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// Values of the action AgentFamilies.
const (
	ipv4Alone = "ipv4"
	allOfThem = "all"
)

// gains reports whether users give agents and the first pool, which begin with IPv4, IPv6 too.
func (q *queries) gains() bool { return q.cfg.SwitchesFamilies && q.multiPool() }

// enableFamilies enables switching the second family of a node's agent off and on.
func (wl *workload) enableFamilies(m *machine) {
	switch {
	case !wl.cfg.SwitchesFamilies || len(wl.cfg.Families) < 2:
	case len(m.families) > 1:
		if !wl.gains() {
			wl.can(AgentFamilies, m.name, ipv4Alone)
		}
	default:
		wl.can(AgentFamilies, m.name, allOfThem)
	}
}

// setFamilies changes the configuration of a node's agent, which restarts.
func (m *machine) setFamilies(what string) {
	if m.families = m.w.cfg.Families; what == ipv4Alone {
		m.families = []agent.Family{agent.IPv4}
	}
	m.switched = true
	if m.w.delegated() && what == ipv4Alone {
		m.forgetIPv6()
	}
	if m.phase != down {
		m.crash()
	}
}

// checkFamiliesRest checks that once users are done with IPv6 no IPv6 block is left, except
// those with addresses that pods' statuses name.
func (r *settledRules) checkFamiliesRest(when string) {
	for _, b := range r.Blocks() {
		cidr, m := cidrOf(b), r.machine(b.Spec.NodeName)
		if !r.poolUsers.ipv6Over || !cidr.Addr().Is6() || m == nil || m.phase != serving || r.isHeld(b.Spec.PoolName) || r.space.othersMove(b) {
			continue
		}
		named := func(slot string) bool { pod := m.kubelet.podObject(slot); return pod != nil && statusIn(pod, cidr) }
		if !slices.ContainsFunc(r.workload.slots, named) {
			r.violate(9, "%s: node %s still has block %s, and IPv6 is over", when, m.name, b.Name)
		}
	}
}

// checkFamily checks that no block is claimed of a family that its claimer knew the node's agent
// not to run, nor one with an address that it knew another agent to name, in use or not: others
// map such an address to that node. Recreating a block that podCIDRs lists is not a claim.
func (r *writeRules) checkFamily(b *v1alpha1.PodIPBlock) {
	f, cidr := r.writer.current, cidrOf(b)
	if f == nil || f.controller != nodes || r.lists(b) {
		return
	}
	if f.familyDisabled[ipalloc.FamilyOf(cidr.Addr())] {
		r.violate(9, "block %s was claimed for node %s, whose agent does not run its family", b.Name, b.Spec.NodeName)
	}
	for addr, node := range f.pending.named {
		if cidr.Contains(addr) && node != b.Spec.NodeName {
			r.violate(1, "block %s was claimed for node %s, and the agent of node %s names %s", b.Name, b.Spec.NodeName, node, addr)
		}
	}
}

// named returns the addresses that an operator knows agents to name as their own.
func (o *Operator) named() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, m := range o.w.machines {
		if view := o.parts.Node.Cluster.Ledger.CiliumNode(m.name); view != nil {
			for _, addr := range view.Own {
				out[addr] = m.name
			}
			if view.Addresses != nil {
				for _, addr := range view.Addresses.Stale {
					out[addr] = m.name
				}
			}
		}
	}
	return out
}

// familyDisabled returns the families that an operator knows the agent of a node not to run: it is
// settled, and its report says so.
func (o *Operator) familyDisabled(node string) [2]bool {
	if view := o.parts.Node.Cluster.Ledger.CiliumNode(node); view != nil && o.agents.settled(node) {
		return view.FamiliesDisabled()
	}
	return [2]bool{}
}

// stillNotRun records which families a reconcile no longer knows the agent not to run.
func (f *flight) stillNotRun(o *Operator) {
	for family, off := range o.familyDisabled(f.name) {
		f.familyDisabled[family] = f.familyDisabled[family] && off
	}
}

// kubeletsWrite makes kubelets write all statuses before some time passes. If an agent does not run
// a family, only the statuses of pods show which of its addresses they have.
func (wl *workload) kubeletsWrite(within time.Duration) {
	if !wl.cfg.SwitchesFamilies || within < 15*time.Second {
		return
	}
	for _, m := range wl.machines {
		for _, slot := range wl.slots {
			if m.kubelet.wantsStatus(slot, m.kubelet.podObject(slot)) {
				m.kubelet.writeStatus(slot)
			}
		}
		if m.kubelet.podDue() {
			m.kubelet.writePod()
		}
	}
}

// sandboxesGoFirst reports whether kubelets report a pod as ended only after they have torn its
// sandbox down, as real ones do: its address is then free for anybody.
func (wl *workload) sandboxesGoFirst() bool { return wl.sched != nil || wl.cfg.SwitchesFamilies }

// runs reports whether the node's agent runs a family. Otherwise it neither uses addresses of
// it nor answers their marks.
func (m *machine) runs(f ipalloc.Family) bool {
	return slices.ContainsFunc(m.families, func(run agent.Family) bool { return familyOf(run) == f })
}

// statusIn reports whether the status of a pod names an address of a CIDR.
func statusIn(pod *corev1.Pod, cidr netip.Prefix) bool {
	return slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool {
		addr, err := netip.ParseAddr(ip.IP)
		return err == nil && cidr.Contains(addr)
	})
}

// routers returns the addresses of the agent's router in the families that it runs.
func (m *machine) routers() []netip.Addr {
	var out []netip.Addr
	for _, family := range m.families {
		if addr := m.router[family]; addr.IsValid() {
			out = append(out, addr)
		}
	}
	return out
}

// checkRouter checks that the address of an agent's router did not leave its node's pool.
func (r *writeRules) checkRouter(node string, before, after ipamtypes.AllocationMap) {
	m := r.machine(node)
	if m == nil || m.store == nil || m.phase != serving {
		return
	}
	for _, addr := range m.routers() {
		_, was := before[addr.String()]
		if _, is := after[addr.String()]; was && !is {
			r.violate(2, "%s, which the router of node %s has, was taken out of its pool", addr, node)
		}
	}
}

// checkUnanswered checks that no address leaves a pool unanswered while the operator knows that the
// agent may have restarted.
func (r *writeRules) checkUnanswered(old, now *ciliumv2.CiliumNode) {
	f := r.writer.current
	for key := range old.Spec.IPAM.Pool {
		if _, still := now.Spec.IPAM.Pool[key]; !still && isMarked(old, key) && f != nil && !f.settled {
			r.violate(2, "%s left the pool of node %s unanswered, and its agent may have restarted", key, old.Name)
		}
	}
}
