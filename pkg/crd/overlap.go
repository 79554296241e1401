package crd

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// ResolveOverlaps decides which pool assigns addresses that CIDRs of several pools
// share, and closes those CIDRs of the other pools as a whole. A pool's other CIDRs are
// unaffected.
//
// The CIDR of the oldest pool stays open, then that of the pool first by name. A CIDR closes if an
// open one overlaps it; a closed one closes no other: with A over B over C, where A and C are
// disjoint, A and C stay open. Blocks in the CIDRs do not count: the outcome must not change while
// blocks come and go, nor with a restart. Nodes keep their blocks in a closed CIDR.
//
// CIDRs that are cordoned or drain, or belong to a pool being deleted, assign no block and do not
// take part: otherwise a new pool could never take over the range of an old one.
//
// The result is sorted by name and does not depend on the order of pools. Pools that
// change are copied; the input is not modified.
func ResolveOverlaps(pools []*Pool) []*Pool {
	closed := closedRanges(pools)
	resolved := make([]*Pool, 0, len(pools))
	for _, p := range pools {
		resolved = append(resolved, p.withClosed(closed[p]))
	}
	slices.SortFunc(resolved, func(a, b *Pool) int { return cmp.Compare(a.Name, b.Name) })
	return resolved
}

// claim is one CIDR in the contest for its addresses.
type claim struct {
	pool *Pool
	cidr netip.Prefix
	rank int // 0: the first to stay open
}

// claimsOf lists the CIDRs that take part, the winners first.
func claimsOf(pools []*Pool) []*claim {
	var claims []*claim
	for _, p := range pools {
		for _, r := range p.AllRanges() {
			if r.Allocates() && !p.Deleting {
				claims = append(claims, &claim{pool: p, cidr: r.CIDR})
			}
		}
	}
	slices.SortFunc(claims, func(a, b *claim) int {
		return cmp.Or(a.pool.Created.Compare(b.pool.Created), cmp.Compare(a.pool.Name, b.pool.Name), a.cidr.Compare(b.cidr))
	})
	for i, c := range claims {
		c.rank = i
	}
	return claims
}

// closedRanges returns the CIDRs that close, by pool, each with the first of the open ones that
// overlap it. Open CIDRs share no address, so those sorted by address that overlap one are
// neighbors.
func closedRanges(pools []*Pool) map[*Pool]map[netip.Prefix]*claim {
	closed := map[*Pool]map[netip.Prefix]*claim{}
	var open []*claim // by address
	for _, c := range claimsOf(pools) {
		index, _ := slices.BinarySearchFunc(open, c, func(o, c *claim) int {
			return netipx.PrefixLastIP(o.cidr).Compare(c.cidr.Addr())
		})
		var winner *claim
		for i := index; i < len(open) && open[i].cidr.Overlaps(c.cidr); i++ {
			if winner == nil || open[i].rank < winner.rank {
				winner = open[i]
			}
		}
		switch {
		case winner == nil:
			open = slices.Insert(open, index, c)
		case closed[c.pool] == nil:
			closed[c.pool] = map[netip.Prefix]*claim{c.cidr: winner}
		default:
			closed[c.pool][c.cidr] = winner
		}
	}
	return closed
}

// withClosed returns p with these CIDRs closed and all others open: p itself if it changes none.
func (p *Pool) withClosed(winners map[netip.Prefix]*claim) *Pool {
	next := *p
	changed := false
	for f, old := range p.ranges {
		if old == nil {
			continue
		}
		ranges := *old
		ranges.CIDRs = slices.Clone(old.CIDRs)
		for i := range ranges.CIDRs {
			r := &ranges.CIDRs[i]
			r.YieldsTo = ""
			r.Overlap = netip.Prefix{}
			if winner := winners[r.CIDR]; winner != nil {
				r.YieldsTo = winner.pool.Name
				r.Overlap = winner.cidr
			}
		}
		changed = changed || !slices.Equal(ranges.CIDRs, old.CIDRs)
		next.ranges[f] = &ranges
	}
	if !changed {
		return p
	}
	return &next
}
