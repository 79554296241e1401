package multipool

import (
	"maps"
	"net/netip"
	"slices"
)

// Pools is one run of an agent with several pools, by name. The zero Pools has no
// CIDR and keeps no reserve.
type Pools struct {
	// Reserve is how many addresses of each pool the agent wants to keep free. Of a
	// pool not listed here it wants none until a pod requests one.
	Reserve map[string]int

	agents   map[string]*Agent
	restored bool
}

// Share is what the agent would write for one pool.
type Share struct {
	Pool string
	// CIDRs are sorted. Requested is how many addresses it requests.
	CIDRs     []netip.Prefix
	Requested int
}

func (p *Pools) of(pool string) *Agent {
	if p.agents == nil {
		p.agents = map[string]*Agent{}
	}
	if p.agents[pool] == nil {
		p.agents[pool] = &Agent{Reserve: p.Reserve[pool], restored: p.restored}
	}
	return p.agents[pool]
}

// Sees takes in the assigned CIDRs of one pool as the agent's watch shows them. A
// pool that is no longer listed stays as it was
// (multiPoolManager.ciliumNodeUpdated).
func (p *Pools) Sees(pool string, assigned []netip.Prefix) { p.of(pool).Sees(assigned) }

// Ready reports whether each pool with a reserve has a free address.
func (p *Pools) Ready() bool {
	for pool := range p.Reserve {
		if !p.of(pool).Ready() {
			return false
		}
	}
	return true
}

// Allocate allocates an address of a pool, or records that the owner waits.
func (p *Pools) Allocate(pool, owner string) (netip.Addr, error) { return p.of(pool).Allocate(owner) }

// Wait records that an owner waits for an address of a pool.
func (p *Pools) Wait(pool, owner string) { p.of(pool).Wait(owner) }

// Forget drops an owner that waits for an address of a pool.
func (p *Pools) Forget(pool, owner string) { p.of(pool).Forget(owner) }

// Restore allocates the address of a pool that an owner had before the restart.
func (p *Pools) Restore(pool string, addr netip.Addr, owner string) error {
	return p.of(pool).Restore(addr, owner)
}

// Restored records that all addresses have been restored.
func (p *Pools) Restored() {
	p.restored = true
	for _, a := range p.agents {
		a.Restored()
	}
}

// Release frees an address.
func (p *Pools) Release(addr netip.Addr) {
	for _, a := range p.agents {
		a.Release(addr)
	}
}

// CIDRs returns the CIDRs of all pools that the agent allocates from or has in use.
func (p *Pools) CIDRs() []netip.Prefix {
	var out []netip.Prefix
	for _, pool := range slices.Sorted(maps.Keys(p.agents)) {
		out = append(out, p.agents[pool].CIDRs()...)
	}
	return out
}

// Uses reports whether an address of a CIDR is in use, of whatever pool.
func (p *Pools) Uses(c netip.Prefix) bool {
	for _, a := range p.agents {
		if a.Uses(c) {
			return true
		}
	}
	return false
}

// Closed returns the CIDRs that serve no new owner, of whatever pool, sorted.
func (p *Pools) Closed() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range p.agents {
		out = append(out, a.Closed()...)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// Update calls Agent.Update for each pool, in order of name. A pool without a CIDR
// is forgotten, with the CIDRs it has returned (updateLocalNode); owners that wait
// for it keep waiting.
func (p *Pools) Update() []Share {
	for pool := range p.Reserve {
		p.of(pool)
	}
	var out []Share
	for _, pool := range slices.Sorted(maps.Keys(p.agents)) {
		a := p.agents[pool]
		cidrs, requested := a.Update()
		if len(cidrs) == 0 {
			p.agents[pool] = &Agent{Reserve: a.Reserve, pending: a.pending, restored: a.restored}
		}
		if len(cidrs) > 0 || requested > 0 {
			out = append(out, Share{pool, cidrs, requested})
		}
	}
	return out
}
