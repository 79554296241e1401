package adopt

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// index finds the CIDRs that overlap another one. All are added, and sorted, before the
// first search.
type index[T any] struct {
	entries []entry[T]
	// wide is where the entries of each CIDR of several addresses begin.
	wide map[netip.Prefix]int
}

type entry[T any] struct {
	cidr netip.Prefix
	of   T
}

func (x *index[T]) add(cidr netip.Prefix, of T) {
	x.entries = append(x.entries, entry[T]{cidr.Masked(), of})
}

func (x *index[T]) sort() {
	slices.SortStableFunc(x.entries, func(a, b entry[T]) int { return a.cidr.Compare(b.cidr) })
	x.wide = map[netip.Prefix]int{}
	for i, e := range x.entries {
		if _, there := x.wide[e.cidr]; !there && !e.cidr.IsSingleIP() {
			x.wide[e.cidr] = i
		}
	}
}

// overlapping returns the values that overlap cidr, the widest first.
func (x *index[T]) overlapping(cidr netip.Prefix) iter.Seq[T] {
	return func(yield func(T) bool) {
		for bits := range cidr.Bits() {
			wider := netip.PrefixFrom(cidr.Addr(), bits).Masked()
			for i, there := x.wide[wider]; there && i < len(x.entries) && x.entries[i].cidr == wider; i++ {
				if !yield(x.entries[i].of) {
					return
				}
			}
		}
		i, _ := slices.BinarySearchFunc(x.entries, cidr.Masked(), func(e entry[T], cidr netip.Prefix) int { return e.cidr.Compare(cidr) })
		for ; i < len(x.entries) && ipalloc.Contains(cidr, x.entries[i].cidr); i++ {
			if !yield(x.entries[i].of) {
				return
			}
		}
	}
}
