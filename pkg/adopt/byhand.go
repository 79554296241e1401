package adopt

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// adoptByHand covers a pool that a person filled: with the blocks that its PodIPPool would cut
// there or, if another node has a part of one, with halves of it.
func (p *planner) adoptByHand(n *node) {
	if n.From != CRD {
		return
	}
	addrs := map[netip.Prefix][]netip.Addr{} // by the block the pool would cut
	pools := map[netip.Prefix]*crd.Pool{}
	var homeless []netip.Addr
	for _, addr := range slices.SortedFunc(slices.Values(n.Published), netip.Addr.Compare) {
		if n.covered(ipalloc.Single(addr)) || ipalloc.Covered(ipalloc.Single(addr), n.AssignedCIDRs) {
			continue
		}
		pool := p.poolOf(n, ipalloc.Single(addr))
		if pool == nil {
			homeless = append(homeless, addr)
			continue
		}
		ranges, _ := pool.Ranges(ipalloc.FamilyOf(addr))
		place := netip.PrefixFrom(addr, ranges.Bits).Masked()
		addrs[place] = append(addrs[place], addr)
		pools[place] = pool
	}
	for _, place := range slices.SortedFunc(maps.Keys(addrs), netip.Prefix.Compare) {
		p.cover(n, pools[place], place, addrs[place])
	}
	if len(homeless) > 0 {
		p.block(n, OutsidePools, "Add a range that contains them to the cidrs of the pool that serves the node",
			"%s in spec.ipam.pool and in no PodIPPool", some(homeless))
	}
}

// poolOf returns the first pool that contains an address; pools that serve the node come first.
func (p *planner) poolOf(n *node, single netip.Prefix) *crd.Pool {
	for _, pools := range [][]*crd.Pool{n.Pools, p.Pools} {
		for _, pool := range pools {
			if !pool.Deleting && !pool.Frozen() && pool.Contains(single) {
				return pool
			}
		}
	}
	return nil
}

// cover plans the widest blocks in place that contain addrs, sorted, and no address of another
// node. place is a block of a pool, so the API accepts these.
func (p *planner) cover(n *node, pool *crd.Pool, place netip.Prefix, addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	switch {
	case p.exclusive(n, place):
		n.blocks = append(n.blocks, Block{CIDR: place, Pool: pool.Name})
		p.warnOfMore(n, pool, place, addrs)
	case place.IsSingleIP():
		p.block(n, TwoNodes, "Find out whose pod has it, and take it from the other node by hand",
			"%s is in spec.ipam.pool, and another node's too", place.Addr())
	default:
		low, high := halves(place)
		addrsIn := func(half netip.Prefix) []netip.Addr {
			return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return !half.Contains(a) })
		}
		p.cover(n, pool, low, addrsIn(low))
		p.cover(n, pool, high, addrsIn(high))
	}
}

// exclusive reports whether n alone holds, or will hold, anything in place, and n has no other
// block there.
func (p *planner) exclusive(n *node, place netip.Prefix) bool {
	for range p.standing.overlapping(place) {
		return false
	}
	for owner := range p.owners.overlapping(place) {
		if owner != n {
			return false
		}
	}
	return !slices.ContainsFunc(n.blocks, func(b Block) bool { return b.CIDR.Overlaps(place) })
}

// warnOfMore warns of further addresses that a block makes available to pods.
func (p *planner) warnOfMore(n *node, pool *crd.Pool, place netip.Prefix, addrs []netip.Addr) {
	count := 0
	for _, addr := range pool.Usable(place) {
		if _, found := slices.BinarySearchFunc(addrs, addr, netip.Addr.Compare); !found {
			count++
		}
	}
	if count > 0 {
		p.warn(n, MoreThanBefore, "List in reserved of that pool what pods must not have",
			"block %s of pool %s has %d addresses that spec.ipam.pool did not have", place, pool.Name, count)
	}
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	low = netip.PrefixFrom(p.Addr(), p.Bits()+1)
	bytes := p.Addr().AsSlice()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	addr, _ := netip.AddrFromSlice(bytes)
	return low, netip.PrefixFrom(addr, p.Bits()+1)
}

// some returns the first of many.
func some(addrs []netip.Addr) string {
	const most = 5
	var words []string
	for _, a := range addrs[:min(len(addrs), most)] {
		words = append(words, a.String())
	}
	s := strings.Join(words, ", ")
	if len(addrs) > most {
		return s + " and more"
	}
	return s
}
