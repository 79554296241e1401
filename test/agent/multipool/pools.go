package multipool

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Pools is one run of an agent with several pools, by name. The zero Pools has no
// CIDR, keeps no reserve and runs IPv4 alone.
type Pools struct {
	// Reserve is the number of addresses of each pool, and of each family, that the agent wants to
	// keep free. Of a pool not listed here it wants none until a pod requests one.
	Reserve map[string]int
	// IPv6 says that it runs both families. Each has an allocator of its own
	// (poolPair).
	IPv6 bool

	agents   map[string]*pair
	restored bool
}

// pair is one pool, by family; nil: the agent does not run the family.
type pair [2]*Agent

// Share is the agent's write for one pool.
type Share struct {
	Pool string
	// CIDRs are sorted, IPv4 first. Requested is the number of addresses it requests, by family.
	CIDRs     []netip.Prefix
	Requested [2]int
}

// families are the families that the agent runs.
func (p *Pools) families() []ipalloc.Family {
	if p.IPv6 {
		return []ipalloc.Family{ipalloc.IPv4, ipalloc.IPv6}
	}
	return []ipalloc.Family{ipalloc.IPv4}
}

func (p *Pools) agentsOf(pool string) *pair {
	if p.agents == nil {
		p.agents = map[string]*pair{}
	}
	if p.agents[pool] == nil {
		p.agents[pool] = &pair{}
		for _, f := range p.families() {
			p.agents[pool][f] = &Agent{Reserve: p.Reserve[pool], restored: p.restored}
		}
	}
	return p.agents[pool]
}

// allAgents are the allocators of all pools, in order of name and family.
func (p *Pools) allAgents() []*Agent {
	var out []*Agent
	for _, pool := range slices.Sorted(maps.Keys(p.agents)) {
		for _, f := range p.families() {
			out = append(out, p.agents[pool][f])
		}
	}
	return out
}

// Sees takes in the assigned CIDRs of one pool as the agent's watch shows them, except CIDRs of a
// family that it does not run (multiPoolManager.upsertPoolLocked).
func (p *Pools) Sees(pool string, assigned []netip.Prefix) {
	for _, f := range p.families() {
		var some []netip.Prefix
		for _, c := range assigned {
			if ipalloc.FamilyOf(c.Addr()) == f {
				some = append(some, c)
			}
		}
		p.agentsOf(pool)[f].Sees(some)
	}
}

// Ready reports whether each pool with a reserve has a free address of each family.
func (p *Pools) Ready() bool {
	for pool := range p.Reserve {
		for _, f := range p.families() {
			if !p.agentsOf(pool)[f].Ready() {
				return false
			}
		}
	}
	return true
}

// Allocate allocates an address of a pool, or records that the owner waits. The agent
// must run the family.
func (p *Pools) Allocate(pool string, f ipalloc.Family, owner string) (netip.Addr, error) {
	return p.agentsOf(pool)[f].Allocate(owner)
}

// Wait records that an owner waits for an address of a pool.
func (p *Pools) Wait(pool string, f ipalloc.Family, owner string) { p.agentsOf(pool)[f].Wait(owner) }

// Forget drops an owner that waits for an address of a pool.
func (p *Pools) Forget(pool string, f ipalloc.Family, owner string) {
	p.agentsOf(pool)[f].Forget(owner)
}

// Restore allocates the address of a pool that an owner had before the restart.
func (p *Pools) Restore(pool string, addr netip.Addr, owner string) error {
	if a := p.agentsOf(pool)[ipalloc.FamilyOf(addr)]; a != nil {
		return a.Restore(addr, owner)
	}
	return ErrNotInPool
}

// Restored records that all addresses have been restored.
func (p *Pools) Restored() {
	p.restored = true
	for _, a := range p.allAgents() {
		a.Restored()
	}
}

// Release frees an address.
func (p *Pools) Release(addr netip.Addr) {
	for _, a := range p.allAgents() {
		a.Release(addr)
	}
}

// CIDRs returns the CIDRs of all pools that the agent allocates from or has in use.
func (p *Pools) CIDRs() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range p.allAgents() {
		out = append(out, a.CIDRs()...)
	}
	return out
}

// CIDRsOf returns the CIDRs of one pool.
func (p *Pools) CIDRsOf(pool string) []netip.Prefix {
	var out []netip.Prefix
	for _, f := range p.families() {
		if known := p.agents[pool]; known != nil {
			out = append(out, known[f].CIDRs()...)
		}
	}
	return out
}

// Live returns the addresses of a pool that are in use, with their owners. Callers must not
// change it.
func (p *Pools) Live(pool string, f ipalloc.Family) map[netip.Addr]string {
	if known := p.agents[pool]; known != nil && known[f] != nil {
		return known[f].Live()
	}
	return nil
}

// Owners returns the addresses of all pools that are in use, with their owners.
func (p *Pools) Owners() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, a := range p.allAgents() {
		maps.Copy(out, a.Live())
	}
	return out
}

// Uses reports whether an address of a CIDR is in use, of any pool.
func (p *Pools) Uses(c netip.Prefix) bool {
	return slices.ContainsFunc(p.allAgents(), func(a *Agent) bool { return a.Uses(c) })
}

// Closed returns the CIDRs that serve no new owner, of any pool, sorted.
func (p *Pools) Closed() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range p.allAgents() {
		out = append(out, a.Closed()...)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// Update calls Agent.Update for each pool, in order of name. A pool without a CIDR of
// either family is forgotten, with the CIDRs it has returned (updateLocalNode); owners
// that wait for it keep waiting.
func (p *Pools) Update() []Share {
	for pool := range p.Reserve {
		p.agentsOf(pool)
	}
	var out []Share
	for _, pool := range slices.Sorted(maps.Keys(p.agents)) {
		s := Share{Pool: pool}
		for _, f := range p.families() {
			cidrs, requested := p.agents[pool][f].Update()
			s.CIDRs, s.Requested[f] = append(s.CIDRs, cidrs...), requested
		}
		if len(s.CIDRs) == 0 {
			for _, f := range p.families() {
				a := p.agents[pool][f]
				p.agents[pool][f] = &Agent{Reserve: a.Reserve, pending: a.pending, restored: a.restored}
			}
		}
		if len(s.CIDRs) > 0 || s.Requested != [2]int{} {
			out = append(out, s)
		}
	}
	return out
}
