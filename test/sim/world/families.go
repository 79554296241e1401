package world

import (
	"net/netip"
	"slices"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// Values of the action AgentFamilies.
const (
	ipv4Alone = "ipv4"
	allOfThem = "all"
)

// enableFamilies is the second family of a node's agent, which people switch off and on.
func (w *World) enableFamilies(m *machine) {
	switch {
	case !w.cfg.SwitchesFamilies || len(w.cfg.Families) < 2:
	case len(m.families) > 1:
		w.can(AgentFamilies, m.name, ipv4Alone)
	default:
		w.can(AgentFamilies, m.name, allOfThem)
	}
}

// setFamilies changes the configuration of a node's agent, which restarts along with it.
func (m *machine) setFamilies(what string) {
	if m.families = m.w.cfg.Families; what == ipv4Alone {
		m.families = []agent.Family{agent.IPv4}
	}
	m.switched = true
	if m.phase != down {
		m.crash()
	}
}

// switchFamily takes IPv6 out of a pool, as the API server lets people: its ranges drain, or
// serve again, and they go once the pool's status counts no block of them. Then they come back.
func (w *World) switchFamily(pool *v1alpha1.PodIPPool) {
	if pool.Spec.IPv6 == nil {
		pool.Spec.IPv6 = w.cfg.Pools[0].Spec.IPv6.DeepCopy()
		w.Counts.Did["IPv6 comes back to a pool"]++
		return
	}
	draining := !slices.ContainsFunc(pool.Spec.IPv6.CIDRs, allocates)
	if s := pool.Status.IPv6; draining && s != nil && s.Blocks.InService+s.Blocks.Draining+s.Blocks.CoolingDown == 0 {
		pool.Spec.IPv6 = nil
		w.Counts.Did["IPv6 goes from a pool"]++
		return
	}
	policy := v1alpha1.AllocationDrain
	if draining && w.pick("family", w.api.version, 4) == 0 {
		policy = v1alpha1.AllocationAllocate
	}
	for i := range pool.Spec.IPv6.CIDRs {
		pool.Spec.IPv6.CIDRs[i].AllocationPolicy = policy
	}
}

// endFamilies has the first pool serve both families again, and some agents run them.
func (w *World) endFamilies() {
	if !w.cfg.SwitchesFamilies {
		return
	}
	if stored, ok := w.api.Get(KindPool, w.cfg.Pools[0].Name).(*v1alpha1.PodIPPool); ok {
		pool := stored.DeepCopy()
		pool.Spec.IPv6 = w.cfg.Pools[0].Spec.IPv6.DeepCopy()
		w.must(w.api.Update(pool, false))
	}
	for _, m := range w.machines {
		if len(m.families) < len(w.cfg.Families) && !m.off && w.pick(m.name, 2, 2) == 0 {
			w.Do(Action{AgentFamilies, m.name, allOfThem})
		}
	}
}

// runs says that the node's agent runs a family: of another one it neither uses an address
// nor answers a mark.
func (m *machine) runs(f ipalloc.Family) bool {
	return slices.ContainsFunc(m.families, func(run agent.Family) bool { return familyOf(run) == f })
}

// loseFamily is the end of a pod's second address if its agent does not run the family.
// Its status goes on naming it.
func (e *endpoint) loseFamily(m *machine) {
	e.lost6 = e.lost6 || e.v6.IsValid() && !m.runs(ipalloc.IPv6)
}

// statusIn reports whether the status of a pod names an address of a CIDR.
func statusIn(pod *corev1.Pod, cidr netip.Prefix) bool {
	return slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool {
		addr, err := netip.ParseAddr(ip.IP)
		return err == nil && cidr.Contains(addr)
	})
}

// routers are the addresses of the agent's router in the families that it runs.
func (m *machine) routers() []netip.Addr {
	var out []netip.Addr
	for _, family := range m.families {
		if addr := m.router[family]; addr.IsValid() {
			out = append(out, addr)
		}
	}
	return out
}

// holdRouter checks that the address of an agent's router did not leave its node's pool.
func (w *World) holdRouter(node string, before, after ipamtypes.AllocationMap) {
	m := w.machine(node)
	if m == nil || m.store == nil || m.phase != serving {
		return
	}
	for _, addr := range m.routers() {
		_, was := before[addr.String()]
		if _, is := after[addr.String()]; was && !is {
			w.violate(2, "%s, which the router of node %s has, was taken out of its pool", addr, node)
		}
	}
}
