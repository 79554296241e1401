package state

import (
	"math"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// exclusions are the addresses that no pod may have.
type exclusions struct {
	*core
	*heldBlocks
	*ciliumNodes

	// reserved are the ranges taken for other reasons than a CiliumNode.
	reserved *ipalloc.Space
	// excluded are the addresses of nodes and Services.
	excluded exclude.Set
	// offered are the ranges of CiliumLoadBalancerIPPools, by name, and shared the ranges that are
	// too large a part of a pool to be excluded. cuts are the ranges of all pools.
	offered map[string][]netip.Prefix
	shared  exclude.Set
	cuts    []ipalloc.Cut
}

// Exclude replaces the addresses of a cluster object that no pod may have. From now on no block
// that contains any of them is claimed. It returns the newly excluded addresses, and the ones no
// longer excluded.
func (e *exclusions) Exclude(by exclude.Claimant, cidrs []netip.Prefix) (added, removed []netip.Prefix) {
	e.mu.Lock()
	defer e.unlock()
	return e.exclude(by, cidrs)
}

// ExcludeCiliumNode calls Exclude with the addresses that a CiliumNode names, or none if it is
// deleted: the addresses that other nodes reach its node at, and the agent's addresses that lie in
// none of the node's own blocks and CIDRs, such as one from an earlier IPAM. It must be called
// after each change of the CiliumNode or of the node's blocks.
func (e *exclusions) ExcludeCiliumNode(name string) (added, removed []netip.Prefix) {
	e.mu.Lock()
	defer e.unlock()
	var addrs []netip.Addr
	if cn := e.current(name); cn != nil {
		addrs = slices.Clone(cn.Host)
		for _, addr := range cn.Own {
			if !e.isNodes(cn, addr) {
				addrs = append(addrs, addr)
			}
		}
	}
	return e.exclude(exclude.Claimant{Kind: exclude.CiliumNode, Name: name}, exclude.Of(addrs))
}

// isNodes reports whether an address lies in a block of a CiliumNode's node, or in a CIDR
// that it lists.
func (e *exclusions) isNodes(cn *ciliumnode.View, addr netip.Addr) bool {
	for _, held := range e.byNode[cn.Name] {
		if held.CIDR.Contains(addr) {
			return true
		}
	}
	return ContainsAddr(cn.AssignedCIDRs(), addr)
}

// reserve keeps a prefix from all claims, for another reason than a CiliumNode.
func (e *exclusions) reserve(p netip.Prefix) {
	e.space.Reserve(p)
	e.reserved.Reserve(p)
}

// unreserve undoes one reserve of a prefix.
func (e *exclusions) unreserve(p netip.Prefix) {
	e.space.Unreserve(p)
	e.reserved.Unreserve(p)
}

func (e *exclusions) exclude(by exclude.Claimant, cidrs []netip.Prefix) (added, removed []netip.Prefix) {
	added, removed, shared := e.excluded.Put(by, cidrs)
	e.taken, e.freed = append(e.taken, append(added, shared...)...), append(e.freed, removed...)
	for _, p := range added {
		e.reserve(p)
	}
	for _, p := range removed {
		e.unreserve(p)
	}
	return append(added, shared...), removed // held blocks keep ranges that are only offered to Services
}

// OfferToServices replaces the ranges that a CiliumLoadBalancerIPPool assigns to Services. No block
// of them is claimed from now on; held blocks keep their addresses until a Service gets one. Ranges
// that share addresses with half of the blocks of a PodIPPool's CIDR are only reported: one object
// must not take a pool from all nodes. It reports whether the ranges that are only reported have
// changed.
func (e *exclusions) OfferToServices(name string, ranges []netip.Prefix) (changed bool) {
	e.mu.Lock()
	defer e.unlock()
	if e.offered[name] = ranges; len(ranges) == 0 {
		delete(e.offered, name)
	}
	return e.excludeOffered(name, ranges)
}

func (e *exclusions) excludeOffered(name string, ranges []netip.Prefix) (changed bool) {
	by, reported := exclude.Claimant{Kind: exclude.LoadBalancerPool, Name: name}, []netip.Prefix(nil)
	if slices.ContainsFunc(e.cuts, func(cut ipalloc.Cut) bool { return takesHalf(ranges, cut) }) {
		ranges, reported = nil, ranges
	}
	added, removed, shared := e.shared.Put(by, reported)
	e.exclude(by, ranges)
	return len(added)+len(removed)+len(shared) > 0
}

// takesHalf reports whether ranges, which do not overlap each other, share addresses with at least
// half of the blocks of a range of cut.
func takesHalf(ranges []netip.Prefix, cut ipalloc.Cut) bool {
	return slices.ContainsFunc(cut.Ranges, func(within netip.Prefix) bool {
		part, blocks := 0.0, map[netip.Prefix]bool{}
		for _, r := range ranges {
			if !r.Overlaps(within) {
				continue
			}
			if r.Bits() > cut.BlockBits {
				r = netip.PrefixFrom(r.Addr(), cut.BlockBits).Masked()
			}
			if !blocks[r] {
				blocks[r] = true
				part += math.Ldexp(1, -max(0, r.Bits()-within.Bits()))
			}
		}
		return part >= 0.5
	})
}

// Excluded returns the addresses of nodes and Services in cidr, sorted.
func (e *exclusions) Excluded(cidr netip.Prefix) []exclude.Range {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.withoutOwn(e.excluded.In(cidr))
}

// excludedIn returns the addresses of nodes and Services in cidr, without the ones that are only
// offered to Services.
func (e *exclusions) excludedIn(cidr netip.Prefix) []netip.Prefix {
	return exclude.CIDRs(slices.DeleteFunc(e.Excluded(cidr), exclude.Range.Offered))
}

// withoutOwn drops the addresses that an agent uses itself in its node's own blocks and CIDRs,
// though a cloud provider, or the agent, lists them among the node's addresses.
func (e *exclusions) withoutOwn(ranges []exclude.Range) []exclude.Range {
	return slices.DeleteFunc(ranges, func(r exclude.Range) bool {
		if r.By.Kind != exclude.Node && r.By.Kind != exclude.CiliumNode {
			return false
		}
		cn := e.current(r.By.Name)
		return cn != nil && slices.Contains(cn.Own, r.CIDR.Addr()) && e.isNodes(cn, r.CIDR.Addr())
	})
}

// ExcludedFrom returns the addresses of nodes and Services that a pool, which may be
// nil, covers outside its reserved ranges, sorted by family, then address.
func (e *exclusions) ExcludedFrom(pool *crd.Pool) []exclude.Range {
	return e.coveredBy(pool, &e.excluded)
}

// SharedWith returns the ranges of CiliumLoadBalancerIPPools that a pool, which may be nil,
// covers and nevertheless assigns to nodes, sorted likewise.
func (e *exclusions) SharedWith(pool *crd.Pool) []exclude.Range { return e.coveredBy(pool, &e.shared) }

func (e *exclusions) coveredBy(pool *crd.Pool, by *exclude.Set) []exclude.Range {
	if pool == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []exclude.Range
	for _, f := range ipalloc.Families() {
		whole, _ := pool.Whole(f)
		out = append(out, slices.DeleteFunc(by.InAll(whole.Ranges), func(r exclude.Range) bool {
			return ipalloc.Covered(r.CIDR, pool.Skipped(f))
		})...)
	}
	return e.withoutOwn(out)
}
