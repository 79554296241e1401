package state

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// ErrRefused means that blocks are free, and the API server has refused each of them.
var ErrRefused = errors.New("the API server has refused every free block")

// maxRefused bounds how many refused CIDRs the ledger remembers.
const maxRefused = 256

// Claim picks a block for node from the first of pools that has one, and reserves it in
// this process. The node owns the block once it is created in the API server. It skips
// blocks that the node's agent, running in the given container, has closed, and those that
// the API server has refused: if no other is left, it returns ErrRefused, and the next call
// tries these again. It returns ipalloc.ErrExhausted if no pool has one left.
func (l *Ledger) Claim(f ipalloc.Family, node, agent string, pools []*crd.Pool) (netip.Prefix, *crd.Pool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	near := make([]netip.Prefix, 0, len(l.byNode[node]))
	for _, held := range l.byNode[node] {
		near = append(near, held.CIDR)
	}
	none := ipalloc.ErrExhausted
	for _, pool := range pools {
		cut, ok := pool.Cut(f)
		if !ok || pool.Paused {
			continue
		}
		cidr, err := l.claimOpen(cut, ipalloc.Owner{Pool: pool.Name, Node: node}, agent, near)
		switch {
		case errors.Is(err, ErrRefused):
			none = err
			continue
		case errors.Is(err, ipalloc.ErrExhausted):
			continue
		case err == nil:
			l.claims[node] = append(l.claims[node], cidr)
			l.move(pool.Name)
		}
		return cidr, pool, err
	}
	if errors.Is(none, ErrRefused) {
		clear(l.refused)
	}
	return netip.Prefix{}, nil, none
}

// claimOpen picks a free block that neither an agent has closed nor the API server refused.
func (l *Ledger) claimOpen(cut ipalloc.Cut, o ipalloc.Owner, agent string, near []netip.Prefix) (netip.Prefix, error) {
	var skipped []netip.Prefix
	defer func() {
		for _, cidr := range skipped {
			l.space.Release(cidr)
		}
	}()
	for {
		cidr, err := l.space.Claim(cut, o, near)
		last, closed := l.closed[cidr]
		closed = closed && last.Node == o.Node && last.Closed.Agent == agent
		switch {
		case errors.Is(err, ipalloc.ErrExhausted) && slices.ContainsFunc(skipped, func(p netip.Prefix) bool { return l.refused[p] }):
			return cidr, ErrRefused
		case err != nil || !closed && !l.refused[cidr]:
			return cidr, err
		}
		skipped = append(skipped, cidr)
	}
}

// Refuse drops a claim of node that the API server refuses. Claim skips its CIDR for all
// nodes while it has others, so that a policy against one CIDR does not stop its pool.
func (l *Ledger) Refuse(node string, cidr netip.Prefix) {
	l.mu.Lock()
	defer l.unlock()
	if len(l.refused) >= maxRefused {
		clear(l.refused)
	}
	l.refused[cidr] = true
	l.unhold(node, cidr)
}

// ContainsAddr reports whether one of the prefixes contains the address.
func ContainsAddr(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Claims returns how many blocks of each family are reserved for a node and do not exist yet,
// as their writes are under way.
func (l *Ledger) Claims(node string) (n [2]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cidr := range l.claims[node] {
		n[ipalloc.FamilyOf(cidr.Addr())]++
	}
	return n
}

// move counts a block of a pool that is claimed or freed.
func (l *Ledger) move(pool string) {
	if _, exists := l.turnover[pool]; exists {
		l.turnover[pool]++
	}
}

// Turnover returns how many blocks of each pool, by name, have been claimed or freed so far.
func (l *Ledger) Turnover() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.turnover)
}

// MarkUnknown keeps a claim whose write may or may not have succeeded. Only a live read
// resolves it: the watch may still deliver an older block with that CIDR.
func (l *Ledger) MarkUnknown(node string, cidr netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.unknown[node], cidr) {
		l.unknown[node], l.unknownOf[cidr] = append(l.unknown[node], cidr), append(l.unknownOf[cidr], node)
	}
}

// UnknownClaims returns the claims of node whose writes may or may not have succeeded.
func (l *Ledger) UnknownClaims(node string) []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.unknown[node])
}

// Forget drops a claim of node that was certainly not written, and its unknown state.
func (l *Ledger) Forget(node string, cidr netip.Prefix) {
	l.mu.Lock()
	defer l.unlock()
	removeFrom(l.unknown, node, cidr)
	removeFrom(l.unknownOf, cidr, node)
	l.unhold(node, cidr)
}

// unhold releases a CIDR that node has claimed and that has no block.
func (l *Ledger) unhold(node string, cidr netip.Prefix) {
	_, exists := l.blocks[cidr]
	if o, held := l.space.Owner(cidr); held && !exists && o.Node == node {
		removeFrom(l.claims, node, cidr)
		l.release(cidr)
	}
}
