package world

import (
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/hostscope"
)

// given returns the CIDRs that an agent in a mode considers its node's. In cluster-pool and
// kubernetes mode an agent uses one of each family.
func given(cn *ciliumv2.CiliumNode, mode adopt.Source) []netip.Prefix {
	if mode == adopt.MultiPool {
		return allocatedIn(cn)
	}
	var all []netip.Prefix
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		all = append(all, p.Prefix)
	}
	return firstOfEach(all)
}

// firstOfEach returns the first CIDR of each family.
func firstOfEach(cidrs []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range cidrs {
		if !slices.ContainsFunc(out, func(q netip.Prefix) bool { return sameFamily(p, q) }) {
			out = append(out, p)
		}
	}
	return out
}

func sameFamily(a, b netip.Prefix) bool { return a.Addr().Is4() == b.Addr().Is4() }

// bootOld starts the agent in its old mode, one of Cilium's other IPAM modes. It assigns
// addresses of the CIDRs that its node had when it started, or in multi-pool mode of those on
// its list. It reads no pool, and neither reports nor answers.
func (m *machine) bootOld() {
	if m.mode == adopt.MultiPool {
		m.bootWhole()
		return
	}
	m.store, m.asked, m.phase = nil, false, opened
	m.discover()
	m.old = &hostscope.Agent{}
	if cn, ok := m.w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode); ok {
		m.old.CIDRs = given(cn, m.mode)
	}
}

// take allocates a given address, which a pod or the router has had, in any mode; if agents
// have several pools, from the named one.
func (m *machine) take(pool string, addr netip.Addr, owner string) error {
	switch {
	case m.old != nil:
		return m.old.Take(addr, owner)
	case m.whole != nil:
		err := m.whole.Restore(pool, addr, owner)
		if err != nil {
			m.waits[waitsFor{pool, ipalloc.FamilyOf(addr), owner}] = m.w.clock.now
		}
		return err
	}
	return m.store.Restore(addr, owner)
}

// takeNext allocates any address for the router.
func (m *machine) takeNext(family agent.Family, owner string) (netip.Addr, error) {
	if m.store != nil {
		return m.store.AllocateNextWithoutSync(family, owner)
	}
	return m.takeAny(crd.DefaultCiliumPool, familyOf(family), owner)
}

func familyOf(f agent.Family) ipalloc.Family {
	if f == agent.IPv6 {
		return ipalloc.IPv6
	}
	return ipalloc.IPv4
}

func agentFamily(f ipalloc.Family) agent.Family {
	if f == ipalloc.IPv6 {
		return agent.IPv6
	}
	return agent.IPv4
}

// takeAny allocates any address of a pool and a family from whole blocks.
func (m *machine) takeAny(pool string, family ipalloc.Family, owner string) (netip.Addr, error) {
	if m.whole != nil {
		return m.takeOf(pool, family, owner)
	}
	free := m.old.Free(family)
	if len(free) == 0 {
		return netip.Addr{}, agent.ErrExhausted
	}
	m.picks++
	addr := free[m.w.pick(m.name, m.picks, len(free))]
	return addr, m.old.Take(addr, owner)
}

// allocate allocates for a pod, from the pools that it requests: IPv6 first, which is returned
// if there is no IPv4 (pkg/ipam/allocator.go, AllocateNext, v1.20.1).
func (m *machine) allocate(pools [2]string, owner string) (v4, v6 netip.Addr, err error) {
	if m.store != nil {
		return m.store.AllocateNext(owner)
	}
	m.asked = true
	if m.runs(ipalloc.IPv6) {
		if v6, err = m.takeAny(pools[ipalloc.IPv6], ipalloc.IPv6, owner); err != nil {
			return netip.Addr{}, netip.Addr{}, err
		}
	}
	if v4, err = m.takeAny(pools[ipalloc.IPv4], ipalloc.IPv4, owner); err != nil {
		if v6.IsValid() {
			m.release(v6)
		}
		return netip.Addr{}, netip.Addr{}, err
	}
	return v4, v6, nil
}

func (m *machine) release(addr netip.Addr) {
	switch {
	case m.old != nil:
		m.old.Release(addr)
	case m.whole != nil:
		m.whole.Release(addr)
		m.asked = true
	default:
		m.store.Release(addr)
	}
}
