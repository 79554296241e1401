package adopt

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// adoptGiven plans a block for each CIDR assigned to the node.
func (p *planner) adoptGiven(n *node) {
	given := slices.SortedFunc(slices.Values(n.AssignedCIDRs), netip.Prefix.Compare) // wider before narrower
	for _, cidr := range given {
		if i := slices.IndexFunc(n.standing, func(b crd.Block) bool { return b.CIDR == cidr }); i >= 0 {
			p.keepBlock(n, n.standing[i])
		} else if !n.covered(cidr) {
			p.adopt(n, cidr)
		}
	}
}

// keepBlock checks a block that already exists, unless it was always ours. It does not matter that
// the block leaves once the agent reads its pool.
func (p *planner) keepBlock(n *node, b crd.Block) {
	if n.From == None {
		return
	}
	if !n.Reported && (b.Deleting || b.Phase != ipalloc.InService) {
		p.block(n, BlockLeaves, "Wait until it is gone, or go on with migrate abort", "its block %s is on its way out", b.CIDR)
		return
	}
	if b.AdoptedFrom != "" || !n.Reported {
		n.blocks = append(n.blocks, Block{CIDR: b.CIDR, Pool: b.Pool, Exists: true})
	}
}

// adopt plans a block for cidr, or reports why there can be none.
func (p *planner) adopt(n *node, cidr netip.Prefix) {
	if ipalloc.TooLarge(cidr, p.Whole) {
		f := ipalloc.FamilyOf(cidr.Addr())
		p.block(n, TooLarge, "Let its pods move to nodes with smaller ranges, or leave this node as it is",
			"%s has more addresses than a block may have in this mode (%s)", cidr, f.SizeText(f.Bits()-ipalloc.MaxHostBits(f, p.Whole)))
		return
	}
	for block := range p.standing.overlapping(cidr) {
		p.block(n, OverlapsBlock, "Delete that block (it drains first), then start again",
			"%s shares addresses with block %s of node %s", cidr, block.CIDR, block.Node)
		return
	}
	if pool := p.poolFor(n, cidr); pool != nil {
		n.blocks = append(n.blocks, Block{CIDR: cidr, Pool: pool.Name})
	}
}

// poolFor returns the pool for a block of cidr: a pool that serves the node before others, and a
// pool with an open range before one that has lost it to another pool.
func (p *planner) poolFor(n *node, cidr netip.Prefix) *crd.Pool {
	var found *crd.Pool
	best := 0
	for _, pool := range append(slices.Clone(n.Pools), p.Pools...) {
		if pool.Deleting || pool.Frozen() || p.Whole && pool.CiliumPool != "" || !pool.Contains(cidr) {
			continue
		}
		if rank := p.rank(n, pool, cidr); rank > best {
			found = pool
			best = rank
		}
	}
	if found == nil {
		p.outside(n, cidr)
	} else if !slices.Contains(n.Pools, found) {
		p.warn(n, NotItsPool, "Give that pool a nodeSelector that picks the node, if it is to grow there",
			"%s is in pool %s, which does not serve this node", cidr, found.Name)
	}
	if found != nil && found.Drains(cidr) {
		severity := Warning
		fix := "Set allocationPolicy: Drain once the node has moved, or mean it: only addresses in use are published"
		if p.Whole {
			severity = Blocked
			fix = "Set allocationPolicy: Drain once the node has moved: until then the block would not be assigned"
		}
		p.find(severity, n, RangeDrains, fix, "the range of pool %s that has %s drains", found.Name, cidr)
	}
	return found
}

func (p *planner) rank(n *node, pool *crd.Pool, cidr netip.Prefix) int {
	rank := 1
	if slices.Contains(n.Pools, pool) {
		rank++
	}
	if !pool.Yields(cidr) {
		rank += 2
	}
	return rank
}

// outside reports the reason why no pool contains cidr.
func (p *planner) outside(n *node, cidr netip.Prefix) {
	for _, pool := range p.Pools {
		if pool.Overlaps(cidr) {
			p.block(n, SpansRanges, "Write one range that contains it whole into a pool's cidrs, in place of those",
				"%s is in pool %s in part, or in several of its ranges", cidr, pool.Name)
			return
		}
	}
	p.block(n, OutsidePools, "Add a range that contains it to the cidrs of the pool that serves the node",
		"%s is in no PodIPPool", cidr)
}

// dropShared removes CIDRs from the plan that two nodes would have: neither gets them.
func (p *planner) dropShared() {
	type wanted struct {
		n *node
		b Block
	}
	var requests []wanted
	for _, n := range p.nodes {
		for _, b := range n.blocks {
			requests = append(requests, wanted{n, b})
		}
	}
	slices.SortFunc(requests, func(a, b wanted) int { return a.b.CIDR.Compare(b.b.CIDR) })
	// Prefixes nest or are disjoint, so an overlapping one comes right after the one it overlaps.
	shared := map[*node][]netip.Prefix{}
	for i, a := range requests {
		for _, b := range requests[i+1:] {
			if !a.b.CIDR.Overlaps(b.b.CIDR) {
				break
			}
			if a.n == b.n {
				continue
			}
			for _, w := range [][2]wanted{{a, b}, {b, a}} {
				shared[w[0].n] = append(shared[w[0].n], w[0].b.CIDR)
				p.block(w[0].n, TwoNodes, "Find out whose pods have them, and take them from the other node by hand",
					"%s shares addresses with %s of node %s", w[0].b.CIDR, w[1].b.CIDR, w[1].n.Name)
			}
		}
	}
	for n, cidrs := range shared {
		n.blocks = slices.DeleteFunc(n.blocks, func(b Block) bool { return !b.Exists && slices.Contains(cidrs, b.CIDR) })
	}
}

// index finds the CIDRs that overlap another one. All are added, and sorted, before the
// first search.
type index[T any] struct {
	entries []entry[T]
	// wide is where the entries of each CIDR of several addresses begin.
	wide map[netip.Prefix]int
}

type entry[T any] struct {
	cidr  netip.Prefix
	value T
}

func (x *index[T]) add(cidr netip.Prefix, value T) {
	x.entries = append(x.entries, entry[T]{cidr.Masked(), value})
}

func (x *index[T]) sort() {
	slices.SortStableFunc(x.entries, func(a, b entry[T]) int { return a.cidr.Compare(b.cidr) })
	x.wide = map[netip.Prefix]int{}
	for i, e := range x.entries {
		if _, ok := x.wide[e.cidr]; !ok && !e.cidr.IsSingleIP() {
			x.wide[e.cidr] = i
		}
	}
}

// overlapping returns the values that overlap cidr, the widest first.
func (x *index[T]) overlapping(cidr netip.Prefix) iter.Seq[T] {
	return func(yield func(T) bool) {
		for bits := range cidr.Bits() {
			wider := netip.PrefixFrom(cidr.Addr(), bits).Masked()
			for i, ok := x.wide[wider]; ok && i < len(x.entries) && x.entries[i].cidr == wider; i++ {
				if !yield(x.entries[i].value) {
					return
				}
			}
		}
		i, _ := slices.BinarySearchFunc(x.entries, cidr.Masked(), func(e entry[T], cidr netip.Prefix) int { return e.cidr.Compare(cidr) })
		for ; i < len(x.entries) && ipalloc.Contains(cidr, x.entries[i].cidr); i++ {
			if !yield(x.entries[i].value) {
				return
			}
		}
	}
}
