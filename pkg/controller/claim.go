package controller

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Claim picks a block for node from the first of pools that has one, and takes
// it in this process. The block is the node's once it is created in the API
// server. ipalloc.ErrExhausted: no pool has one left.
func (l *Ledger) Claim(f ipalloc.Family, node string, pools []*crd.Pool) (netip.Prefix, *crd.Pool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cidr, pool, ok := l.resume(f, node, pools); ok {
		return cidr, pool, nil
	}
	near := make([]netip.Prefix, 0, len(l.byNode[node]))
	for cidr := range l.byNode[node] {
		near = append(near, cidr)
	}
	for _, pool := range pools {
		cut, ok := pool.Cut(f)
		if !ok || pool.Paused {
			continue
		}
		cidr, err := l.space.Claim(cut, ipalloc.Owner{Pool: pool.Name, Node: node}, near)
		if errors.Is(err, ipalloc.ErrExhausted) {
			continue
		}
		return cidr, pool, err
	}
	return netip.Prefix{}, nil, ipalloc.ErrExhausted
}

// resume takes up a claim whose write was never answered.
func (l *Ledger) resume(f ipalloc.Family, node string, pools []*crd.Pool) (netip.Prefix, *crd.Pool, bool) {
	for i, cidr := range l.unsure[node] {
		o, held := l.space.Owner(cidr)
		at := slices.IndexFunc(pools, func(p *crd.Pool) bool { return p.Name == o.Pool })
		if !held || at < 0 || ipalloc.FamilyOf(cidr.Addr()) != f || !claimable(pools[at], f, cidr) {
			continue
		}
		l.forgetUnsure(node, i)
		return cidr, pools[at], true
	}
	return netip.Prefix{}, nil, false
}

func claimable(pool *crd.Pool, f ipalloc.Family, cidr netip.Prefix) bool {
	cut, ok := pool.Cut(f)
	return ok && !pool.Paused && anyContains(cut.Ranges, cidr.Addr())
}

func anyContains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Unclaim gives up a claim that certainly was not written.
func (l *Ledger) Unclaim(cidr netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, exists := l.blocks[cidr]; !exists {
		l.space.Release(cidr)
	}
}

// Unsure keeps a claim of which nobody knows whether it was written.
func (l *Ledger) Unsure(node string, cidr netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The watch may have shown meanwhile that the CIDR is somebody else's, or
	// that an older block there is gone.
	if o, held := l.space.Owner(cidr); !held || o.Node != node {
		return
	}
	if _, exists := l.blocks[cidr]; !exists {
		l.unsure[node] = append(l.unsure[node], cidr)
	}
}

// UnsureOf are the claims of node of which nobody knows whether they were
// written.
func (l *Ledger) UnsureOf(node string) []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.unsure[node])
}

// Disclaim ends the doubt about a claim that turned out not to be written.
func (l *Ledger) Disclaim(node string, cidr netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.unsure[node], cidr); i >= 0 {
		l.forgetUnsure(node, i)
		l.space.Release(cidr)
	}
}
