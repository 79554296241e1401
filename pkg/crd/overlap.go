package crd

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// ResolveOverlaps decides which pool assigns addresses that CIDRs of several pools
// share, and closes those CIDRs of the other pools as a whole. A pool's other CIDRs are
// unaffected.
//
// Of two CIDRs the stronger is the one whose pool already holds blocks in the
// intersection (according to holds), then that of the older pool, then of the pool
// first by name. A CIDR closes if an open one is stronger than it; a closed one closes
// nothing: with A over B over C, where A and C are disjoint, A and C stay open. Holding
// can make three CIDRs beat each other in a cycle; then the oldest undecided one opens,
// even if another beats it.
//
// CIDRs that are cordoned or drain, and those of pools being deleted, assign nothing
// and do not take part: otherwise a new pool could never take over the range of an old
// one.
//
// The result is sorted by name and does not depend on the order of pools. Pools that
// change are copied; the input is not modified.
func ResolveOverlaps(pools []*Pool, holds func(pool string, within netip.Prefix) bool) []*Pool {
	claims := claimsOf(pools)
	compare(claims, holds)
	settle(claims)

	closed := closedRanges(claims)
	resolved := make([]*Pool, 0, len(pools))
	for _, p := range pools {
		resolved = append(resolved, p.withClosed(closed[p]))
	}
	slices.SortFunc(resolved, func(a, b *Pool) int { return cmp.Compare(a.Name, b.Name) })
	return resolved
}

// claim is one CIDR in the contest for its addresses.
type claim struct {
	pool             *Pool
	cidr             netip.Prefix
	stronger, weaker []*claim // those it overlaps
	decided          bool
	closedBy         *claim
}

// claimsOf lists the CIDRs that take part, sorted so that each follows all that contain
// it.
func claimsOf(pools []*Pool) []*claim {
	var claims []*claim
	for _, p := range pools {
		for _, f := range ipalloc.Families() {
			claims = append(claims, p.claims(f)...)
		}
	}
	slices.SortFunc(claims, func(a, b *claim) int {
		return cmp.Or(a.cidr.Compare(b.cidr), cmp.Compare(a.pool.Name, b.pool.Name))
	})
	return claims
}

func (p *Pool) claims(f ipalloc.Family) []*claim {
	ranges, ok := p.Ranges(f)
	if !ok || p.Deleting {
		return nil
	}
	var claims []*claim
	for _, r := range ranges.CIDRs {
		if r.Allocates() {
			claims = append(claims, &claim{pool: p, cidr: r.CIDR})
		}
	}
	return claims
}

// compare finds each pair of overlapping claims, and which is the stronger. Two CIDRs
// overlap only if one contains the other, so at the start of a claim only those still
// open, in the sense of a bracket, matter:
//
//	a  ├───────────────────┤
//	b     ├──────┤
//	c       ├──┤                 at c: a, b
//	d               ├──┤         at d: a
func compare(claims []*claim, holds func(string, netip.Prefix) bool) {
	var around []*claim
	for _, c := range claims {
		for len(around) > 0 && !ipalloc.Contains(around[len(around)-1].cidr, c.cidr) {
			around = around[:len(around)-1]
		}
		for _, a := range around {
			winner, loser := a, c
			if beats(c, a, c.cidr, holds) {
				winner, loser = c, a
			}
			winner.weaker = append(winner.weaker, loser)
			loser.stronger = append(loser.stronger, winner)
		}
		around = append(around, c)
	}
}

// beats reports whether a, rather than b, assigns the addresses of shared.
func beats(a, b *claim, shared netip.Prefix, holds func(string, netip.Prefix) bool) bool {
	ours, theirs := holds(a.pool.Name, shared), holds(b.pool.Name, shared)
	if ours != theirs {
		return ours
	}
	return olderFirst(a, b) < 0
}

func olderFirst(a, b *claim) int {
	return cmp.Or(a.pool.Created.Compare(b.pool.Created), cmp.Compare(a.pool.Name, b.pool.Name), a.cidr.Compare(b.cidr))
}

// settle opens each claim that no undecided one beats, and closes those it overlaps,
// until all are decided.
func settle(claims []*claim) {
	undecided := func(c *claim) bool { return !c.decided }
	left := slices.SortedFunc(slices.Values(claims), olderFirst)
	for len(left) > 0 {
		ring := true
		for _, c := range left {
			if !c.decided && !slices.ContainsFunc(c.stronger, undecided) {
				c.open()
				ring = false
			}
		}
		if ring {
			left[0].open()
		}
		left = slices.DeleteFunc(left, func(c *claim) bool { return c.decided })
	}
}

// open keeps c and closes all claims that overlap it.
func (c *claim) open() {
	c.decided = true
	for _, rivals := range [][]*claim{c.stronger, c.weaker} {
		for _, r := range rivals {
			if !r.decided {
				r.decided, r.closedBy = true, c
			}
		}
	}
}

// closedRanges lists the closed CIDRs by pool.
func closedRanges(claims []*claim) map[*Pool]map[netip.Prefix]*claim {
	closed := map[*Pool]map[netip.Prefix]*claim{}
	for _, c := range claims {
		if c.closedBy == nil {
			continue
		}
		if closed[c.pool] == nil {
			closed[c.pool] = map[netip.Prefix]*claim{}
		}
		closed[c.pool][c.cidr] = c.closedBy
	}
	return closed
}

// withClosed returns p with these CIDRs closed and all others open: p itself if nothing
// changes.
func (p *Pool) withClosed(by map[netip.Prefix]*claim) *Pool {
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
			r.ClosedBy, r.Overlap = "", netip.Prefix{}
			if winner := by[r.CIDR]; winner != nil {
				r.ClosedBy, r.Overlap = winner.pool.Name, winner.cidr
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
