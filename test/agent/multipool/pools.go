package multipool

import (
	"maps"
	"net/netip"
	"slices"
)

// Pools is one run of an agent that knows several pools, by name. The zero Pools
// knows of no CIDR and keeps no reserve.
type Pools struct {
	// Reserve is how many addresses of each pool it wants to have free. Of a pool
	// that is not named it wants none before somebody asks for one.
	Reserve map[string]int

	agents   map[string]*Agent
	restored bool
}

// Share is what the agent would write of one pool.
type Share struct {
	Pool string
	// Told are its CIDRs, sorted, and Requested is how many addresses are asked for.
	Told      []netip.Prefix
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

// Sees takes in the list of one pool as the agent's watch shows it. One that is
// not shown any more goes on as it was (multiPoolManager.ciliumNodeUpdated).
func (p *Pools) Sees(pool string, told []netip.Prefix) { p.of(pool).Sees(told) }

// Ready says that there is an address of each pool with a reserve.
func (p *Pools) Ready() bool {
	for pool := range p.Reserve {
		if !p.of(pool).Ready() {
			return false
		}
	}
	return true
}

// Allocate gives an owner an address of a pool, or notes that the owner waits.
func (p *Pools) Allocate(pool, owner string) (netip.Addr, error) { return p.of(pool).Allocate(owner) }

// Wait notes that an owner waits for an address of a pool.
func (p *Pools) Wait(pool, owner string) { p.of(pool).Wait(owner) }

// Forget drops an owner that waits for an address of a pool.
func (p *Pools) Forget(pool, owner string) { p.of(pool).Forget(owner) }

// Restore gives an owner the address of a pool that it has had.
func (p *Pools) Restore(pool string, addr netip.Addr, owner string) error {
	return p.of(pool).Restore(addr, owner)
}

// Restored says that all have been.
func (p *Pools) Restored() {
	p.restored = true
	for _, a := range p.agents {
		a.Restored()
	}
}

// Release takes an address back.
func (p *Pools) Release(addr netip.Addr) {
	for _, a := range p.agents {
		a.Release(addr)
	}
}

// CIDRs are those that it gives addresses of, or has in use, of whatever pool.
func (p *Pools) CIDRs() []netip.Prefix {
	var out []netip.Prefix
	for _, pool := range slices.Sorted(maps.Keys(p.agents)) {
		out = append(out, p.agents[pool].CIDRs()...)
	}
	return out
}

// Update is Agent.Update of each pool, by name. A pool of which it has no CIDR
// left is forgotten, with what it has given back (updateLocalNode); who waits for
// it goes on waiting.
func (p *Pools) Update() []Share {
	for pool := range p.Reserve {
		p.of(pool)
	}
	var out []Share
	for _, pool := range slices.Sorted(maps.Keys(p.agents)) {
		a := p.agents[pool]
		told, requested := a.Update()
		if len(told) == 0 {
			p.agents[pool] = &Agent{Reserve: a.Reserve, pending: a.pending, restored: a.restored}
		}
		if len(told) > 0 || requested > 0 {
			out = append(out, Share{pool, told, requested})
		}
	}
	return out
}
