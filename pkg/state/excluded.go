package state

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Exclude replaces the addresses of a cluster object that no pod may have. From now on no
// block that contains any of them is claimed. It returns the newly excluded addresses, and
// those that are no longer excluded.
func (l *Ledger) Exclude(by exclude.Claimant, cidrs []netip.Prefix) (added, removed []netip.Prefix) {
	l.mu.Lock()
	defer l.unlock()
	return l.exclude(by, cidrs)
}

// ExcludeCiliumNode calls Exclude with what a CiliumNode names, or nothing if it is
// deleted: the addresses at which other nodes reach its node, and those of its agent that
// lie in none of the node's own blocks and CIDRs, such as one from an earlier IPAM. It must
// be called after each change of the CiliumNode or of the node's blocks.
func (l *Ledger) ExcludeCiliumNode(name string) (added, removed []netip.Prefix) {
	l.mu.Lock()
	defer l.unlock()
	var addrs []netip.Addr
	if cn := l.ciliumNodes.current(name); cn != nil {
		addrs = slices.Clone(cn.Host)
		for _, addr := range cn.Own {
			if !l.isNodes(cn, addr) {
				addrs = append(addrs, addr)
			}
		}
	}
	return l.exclude(exclude.Claimant{Kind: exclude.CiliumNode, Name: name}, exclude.Of(addrs))
}

// isNodes reports whether an address lies in a block of a CiliumNode's node, or in a CIDR
// that it lists.
func (l *Ledger) isNodes(cn *ciliumnode.View, addr netip.Addr) bool {
	for _, held := range l.byNode[cn.Name] {
		if held.CIDR.Contains(addr) {
			return true
		}
	}
	return ContainsAddr(cn.AssignedCIDRs(), addr)
}

func (l *Ledger) exclude(by exclude.Claimant, cidrs []netip.Prefix) (added, removed []netip.Prefix) {
	added, removed, shared := l.excluded.Put(by, cidrs)
	l.taken, l.freed = append(l.taken, append(added, shared...)...), append(l.freed, removed...)
	for _, p := range added {
		l.space.Reserve(p)
		l.withheld.Reserve(p)
	}
	for _, p := range removed {
		l.space.Unreserve(p)
		l.withheld.Unreserve(p)
	}
	return append(added, shared...), removed // held blocks keep what is only offered to Services
}

// OfferToServices replaces the ranges from which a CiliumLoadBalancerIPPool assigns addresses to
// Services. No block of them is claimed from now on; held blocks keep their addresses until a
// Service gets one. Ranges that share addresses with half of the blocks of a PodIPPool's CIDR are only reported: one
// object must not take a pool from all nodes. It reports whether what is only reported has changed.
func (l *Ledger) OfferToServices(name string, ranges []netip.Prefix) (changed bool) {
	l.mu.Lock()
	defer l.unlock()
	if l.offered[name] = ranges; len(ranges) == 0 {
		delete(l.offered, name)
	}
	return l.excludeOffered(name, ranges)
}

func (l *Ledger) excludeOffered(name string, ranges []netip.Prefix) (changed bool) {
	by, reported := exclude.Claimant{Kind: exclude.LoadBalancerPool, Name: name}, []netip.Prefix(nil)
	if slices.ContainsFunc(l.cuts, func(cut ipalloc.Cut) bool { return takesHalf(ranges, cut) }) {
		ranges, reported = nil, ranges
	}
	added, removed, shared := l.shared.Put(by, reported)
	l.exclude(by, ranges)
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
func (l *Ledger) Excluded(cidr netip.Prefix) []exclude.Range {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.withoutOwn(l.excluded.In(cidr))
}

// withoutOwn drops the addresses that an agent uses itself in its node's own blocks and CIDRs,
// though a cloud provider, or the agent, lists them among those of the node.
func (l *Ledger) withoutOwn(ranges []exclude.Range) []exclude.Range {
	return slices.DeleteFunc(ranges, func(r exclude.Range) bool {
		if r.By.Kind != exclude.Node && r.By.Kind != exclude.CiliumNode {
			return false
		}
		cn := l.ciliumNodes.current(r.By.Name)
		return cn != nil && slices.Contains(cn.Own, r.CIDR.Addr()) && l.isNodes(cn, r.CIDR.Addr())
	})
}

// ExcludedFrom returns the addresses of nodes and Services that a pool, which may be
// nil, covers outside its reserved ranges, sorted by family, then address.
func (l *Ledger) ExcludedFrom(pool *crd.Pool) []exclude.Range {
	return l.coveredBy(pool, &l.excluded)
}

// SharedWith returns the ranges of CiliumLoadBalancerIPPools that a pool, which may be nil,
// covers and nevertheless assigns to nodes, sorted likewise.
func (l *Ledger) SharedWith(pool *crd.Pool) []exclude.Range { return l.coveredBy(pool, &l.shared) }

func (l *Ledger) coveredBy(pool *crd.Pool, by *exclude.Set) []exclude.Range {
	if pool == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []exclude.Range
	for _, f := range ipalloc.Families() {
		whole, _ := pool.Whole(f)
		out = append(out, slices.DeleteFunc(by.InAll(whole.Ranges), func(r exclude.Range) bool {
			return ipalloc.Covered(r.CIDR, pool.Skipped(f))
		})...)
	}
	return l.withoutOwn(out)
}

// HeldIn returns the blocks that share addresses with cidr, including cidr itself.
func (l *Ledger) HeldIn(cidr netip.Prefix) []ipalloc.Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.space.Overlapping(cidr)
	if owner, ok := l.space.Owner(cidr); ok {
		held = append(held, ipalloc.Held{CIDR: cidr, Owner: owner})
	}
	return held
}

// HolderOf returns a block that overlaps an excluded prefix, and its node, or "" if there
// is none.
func (l *Ledger) HolderOf(r exclude.Range) string {
	held := l.HeldIn(r.CIDR)
	if len(held) == 0 {
		return ""
	}
	return fmt.Sprintf("in block %s of node %s", held[0].CIDR, held[0].Owner.Node)
}
