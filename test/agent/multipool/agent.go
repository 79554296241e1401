// Package multipool models the allocator of Cilium's agent in multi-pool mode: the addresses it
// allocates from its assigned CIDRs, the number it requests, and the CIDRs it returns. Agent models
// one family of one pool, Pools all of them. It needs no clock and no API server.
//
// Source: pkg/ipam/pool.go and pkg/ipam/multipool_manager.go of Cilium v1.20.1.
package multipool

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
)

// Errors of allocation.
var (
	ErrExhausted = errors.New("all CIDR ranges are exhausted")
	ErrNotInPool = errors.New("IP not in range of any CIDR")
	ErrInUse     = errors.New("IP is already allocated")
)

// Agent is one run of an agent. The zero Agent has no CIDR and keeps no reserve.
type Agent struct {
	// Reserve is --ipam-multi-pool-pre-allocation: the number of addresses that the agent wants to
	// keep free.
	Reserve int

	cidrs []netip.Prefix
	// released are the CIDRs that the agent has returned and still sees on its list, removed the
	// CIDRs that another writer took off the list while they were in use.
	released []netip.Prefix
	removed  map[netip.Prefix]bool
	live     map[netip.Addr]string
	pending  map[string]bool
	restored bool
}

// Sees takes in the assigned CIDRs as the agent's watch shows them, without host bits
// (cidrPool.updatePool).
func (a *Agent) Sees(listed []netip.Prefix) {
	var assigned []netip.Prefix
	for _, c := range listed {
		assigned = append(assigned, c.Masked())
	}
	a.released = slices.DeleteFunc(a.released, func(c netip.Prefix) bool { return !slices.Contains(assigned, c) })
	var kept []netip.Prefix
	for _, c := range a.cidrs {
		if !slices.Contains(assigned, c) {
			if !a.Uses(c) {
				continue
			}
			if a.removed == nil {
				a.removed = map[netip.Prefix]bool{}
			}
			a.removed[c] = true // until the agent restarts
		}
		kept = append(kept, c)
	}
	for _, c := range assigned {
		if !slices.Contains(kept, c) && !slices.Contains(a.released, c) {
			kept = append(kept, c)
		}
	}
	a.cidrs = kept
}

// Ready reports whether the agent has a free address, which it waits for when it
// starts (multiPoolManager.waitForAllPools).
func (a *Agent) Ready() bool {
	_, ok := a.next()
	return ok || a.Reserve == 0
}

// Allocate allocates an address for an owner, the lowest of the first CIDR that has
// a free one (cidrPool.allocateNext), or records that the owner waits.
func (a *Agent) Allocate(owner string) (netip.Addr, error) {
	addr, ok := a.next()
	if !ok {
		a.Wait(owner)
		return netip.Addr{}, ErrExhausted
	}
	a.take(addr, owner)
	return addr, nil
}

// Wait records that an owner waits.
func (a *Agent) Wait(owner string) {
	if a.pending == nil {
		a.pending = map[string]bool{}
	}
	a.pending[owner] = true
}

func (a *Agent) next() (netip.Addr, bool) {
	for _, c := range a.cidrs {
		if a.removed[c] {
			continue
		}
		for _, addr := range Inner(c) {
			if _, busy := a.live[addr]; !busy {
				return addr, true
			}
		}
	}
	return netip.Addr{}, false
}

func (a *Agent) take(addr netip.Addr, owner string) {
	if a.live == nil {
		a.live = map[netip.Addr]string{}
	}
	a.live[addr] = owner
	delete(a.pending, owner)
}

// Restore allocates the address that an owner had before the restart
// (cidrPool.allocate), or records that the owner waits, as it does for any address.
func (a *Agent) Restore(addr netip.Addr, owner string) error {
	i := slices.IndexFunc(a.cidrs, func(c netip.Prefix) bool { return c.Contains(addr) })
	if _, busy := a.live[addr]; busy {
		a.Wait(owner)
		return ErrInUse
	}
	if i < 0 || !slices.Contains(Inner(a.cidrs[i]), addr) {
		a.Wait(owner)
		return ErrNotInPool
	}
	a.take(addr, owner)
	return nil
}

// Restored records that all addresses have been restored. From then on the agent
// returns CIDRs.
func (a *Agent) Restored() { a.restored = true }

// Release frees an address.
func (a *Agent) Release(addr netip.Addr) { delete(a.live, addr) }

// Forget drops an owner that waits, as the agent does after a while.
func (a *Agent) Forget(owner string) { delete(a.pending, owner) }

// Uses reports whether an address of a CIDR is in use.
func (a *Agent) Uses(c netip.Prefix) bool { return a.used(c) > 0 }

// Closed returns the CIDRs that another writer took off the list while they were in use:
// they serve no new owner before the agent restarts.
func (a *Agent) Closed() []netip.Prefix { return slices.Collect(maps.Keys(a.removed)) }

// Live returns the addresses in use, with their owners. Callers must not change it.
func (a *Agent) Live() map[netip.Addr]string { return a.live }

// CIDRs returns the CIDRs that the agent allocates from or has in use.
func (a *Agent) CIDRs() []netip.Prefix { return slices.Clone(a.cidrs) }

func (a *Agent) used(c netip.Prefix) int {
	n := 0
	for addr := range a.live {
		if c.Contains(addr) {
			n++
		}
	}
	return n
}

func (a *Agent) free(c netip.Prefix) int { return len(Inner(c)) - a.used(c) }

// Needs returns the number of addresses that the agent requests (computeNeededIPsPerPoolLocked with
// neededIPCeil).
func (a *Agent) Needs() int {
	n := len(a.live) + len(a.pending)
	switch {
	case a.Reserve == 0:
		return n
	case n%a.Reserve > 0:
		return (n/a.Reserve + 2) * a.Reserve
	}
	return (n/a.Reserve + 1) * a.Reserve
}

// Update drops CIDRs that the agent does not need, takes back CIDRs that it dropped too early, and
// returns the agent's write: its CIDRs, sorted, and the number of addresses it requests
// (updateLocalNode with releaseExcessCIDRsMultiPool).
func (a *Agent) Update() (cidrs []netip.Prefix, requested int) {
	requested = a.Needs()
	if a.restored {
		a.giveBack(max(0, requested-len(a.live)))
	}
	return slices.SortedFunc(slices.Values(a.cidrs), netip.Prefix.Compare), requested
}

func (a *Agent) giveBack(spare int) {
	free := 0
	for _, c := range a.cidrs {
		free += a.free(c)
	}
	slices.SortFunc(a.released, netip.Prefix.Compare)
	for free < spare && len(a.released) > 0 {
		a.cidrs, a.released = append(a.cidrs, a.released[0]), a.released[1:]
		free += a.free(a.cidrs[len(a.cidrs)-1])
	}
	var kept []netip.Prefix
	for _, c := range slices.Backward(a.cidrs) {
		if !a.Uses(c) && free-a.free(c) >= spare {
			a.released = append(a.released, c)
			free -= a.free(c)
		} else {
			kept = append(kept, c)
		}
	}
	a.cidrs = kept
}

// Inner returns the addresses of a CIDR that an agent allocates: all but the first
// and the last, or all if there are no more than two.
func Inner(c netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for addr := c.Masked().Addr(); c.Contains(addr); addr = addr.Next() {
		out = append(out, addr)
	}
	if len(out) > 2 {
		out = out[1 : len(out)-1]
	}
	return out
}
