package state

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// maxNodeBits are the host bits of the largest CIDR that can be the range of one node: /16 and
// /64, by far more than a kubelet can run pods.
var maxNodeBits = [2]int{ipalloc.IPv4: 16, ipalloc.IPv6: 64}

// withholds reports whether a CIDR that a CiliumNode lists is taken as a whole. Otherwise only
// the addresses that the CiliumNode names are taken, so that one wrong entry cannot take
// every pool from all nodes:
//
//	more addresses than maxNodeBits        no
//	more addresses than a block can have   unless the agent runs in crd mode, where it allocates
//	                                       from its pool alone, or another node has a block there
//	otherwise                              unless both
//
// A block inside such a CIDR has a more specific route.
func (l *Ledger) withholds(cn *ciliumnode.View, cidr netip.Prefix) bool {
	hostBits := cidr.Addr().BitLen() - cidr.Bits()
	if hostBits > maxNodeBits[ipalloc.FamilyOf(cidr.Addr())] {
		return false
	}
	alone := !slices.ContainsFunc(l.space.Overlapping(cidr), func(h ipalloc.Held) bool {
		return h.Owner.Node != cn.Name && ipalloc.Contains(cidr, h.CIDR)
	})
	if hostBits > ipalloc.MaxHostBits {
		return alone && !cn.ReportsUse(cidr)
	}
	return alone || !cn.ReportsUse(cidr)
}

func (l *Ledger) foreignOf(node string) []netip.Prefix {
	if l.seen[node] == nil {
		return nil
	}
	cn := l.seen[node].view
	taken := slices.DeleteFunc(cn.AssignedCIDRs(), func(p netip.Prefix) bool { return !l.withholds(cn, p) })
	covers := slices.Clone(taken)
	for _, held := range l.byNode[node] {
		covers = append(covers, held.CIDR)
	}
	for addr := range cn.Addresses() {
		if !ContainsAddr(covers, addr) {
			taken = append(taken, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	if cn.BlockAssignment != nil {
		for _, p := range cn.BlockAssignment.Taken {
			if l.withholds(cn, p) {
				taken = append(taken, p)
			}
		}
	}
	slices.SortFunc(taken, netip.Prefix.Compare)
	return slices.Compact(taken)
}

// Withholder is a CiliumNode that names addresses outside its node's blocks, so that no node can
// claim this many blocks of a pool.
type Withholder struct {
	CiliumNode string
	Blocks     uint64
}

// Withholders returns the CiliumNodes that withhold blocks from a pool, most blocks first. It
// walks all CiliumNodes.
func (l *Ledger) Withholders(cut ipalloc.Cut) []Withholder {
	l.mu.Lock()
	names := l.namers("")
	l.mu.Unlock()
	var out []Withholder
	inParts(&l.mu, names, func(name string) {
		if n := l.withheldBy(name, cut); n > 0 {
			out = append(out, Withholder{name, n})
		}
	})
	slices.SortFunc(out, func(a, b Withholder) int {
		return cmp.Or(cmp.Compare(b.Blocks, a.Blocks), cmp.Compare(a.CiliumNode, b.CiliumNode))
	})
	return out
}

// withheldBy counts the blocks of cut that a CiliumNode withholds.
func (l *Ledger) withheldBy(name string, cut ipalloc.Cut) (n uint64) {
	counted := map[netip.Prefix]bool{}
	for _, p := range l.foreign(name) {
		for _, within := range cut.Ranges {
			if !within.Overlaps(p) || l.isHeld(p) {
				continue
			}
			part := p
			if part.Bits() < within.Bits() {
				part = within
			}
			if part.Bits() < cut.BlockBits {
				total := ipalloc.Cut{Ranges: []netip.Prefix{part}, BlockBits: cut.BlockBits}.Total()
				n += total - min(total, uint64(len(l.space.Overlapping(part))))
				continue
			}
			block := netip.PrefixFrom(part.Addr(), cut.BlockBits).Masked()
			if !counted[block] && !l.isHeld(block) {
				counted[block], n = true, n+1
			}
		}
	}
	return n
}

// NamedElsewhere returns the parts of cidr that other nodes' CiliumNodes name, outside their own
// blocks. It walks all of them if another one names a part of cidr, which is rare. Concurrent
// changes may or may not be included.
func (l *Ledger) NamedElsewhere(node string, cidr netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	inParts(&l.mu, l.mayName(node, cidr), func(name string) {
		for _, p := range l.foreign(name) {
			if p.Overlaps(cidr) {
				out = append(out, p)
			}
		}
	})
	return out
}

// mayName returns the other nodes, if the CiliumNode of one of them names a part of cidr.
func (l *Ledger) mayName(node string, cidr netip.Prefix) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := 0
	for _, p := range l.foreign(node) {
		if p.Overlaps(cidr) {
			own++
		}
	}
	if l.space.Reservations(cidr)-l.withheld.Reservations(cidr) == own {
		return nil
	}
	return l.namers(node)
}

// namers returns the nodes with a CiliumNode that names foreign prefixes, except one.
func (l *Ledger) namers(except string) []string {
	var names []string
	for name, n := range l.seen {
		if name != except && len(n.foreign) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (l *Ledger) foreign(node string) []netip.Prefix {
	if n := l.seen[node]; n != nil {
		return n.foreign
	}
	return nil
}

func (l *Ledger) setForeign(name string, taken []netip.Prefix) (changed bool) {
	old := l.foreign(name)
	if slices.Equal(old, taken) {
		return false
	}
	for _, p := range taken {
		l.space.Reserve(p)
	}
	for _, p := range old {
		l.space.Unreserve(p)
	}
	l.taken = append(l.taken, l.missingFrom(old, taken)...)
	l.freed = append(l.freed, l.missingFrom(taken, old)...)
	l.seen[name].foreign = taken
	return true
}
