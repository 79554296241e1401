// Package exclude knows the addresses of the cluster itself, never for pods: the addresses of nodes
// and Services, and the ranges of Services. It owns the claimants of each of them, and finds the
// ones in a range.
//
// It never talks to Kubernetes, and it does not know pools or blocks.
package exclude

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// The kinds of claimants.
const (
	Node             = "Node"
	CiliumNode       = "CiliumNode"
	Service          = "Service"
	ServiceCIDR      = "ServiceCIDR"
	LoadBalancerPool = "CiliumLoadBalancerIPPool"
	EndpointSlice    = "EndpointSlice" // of the API server
	APIServer        = "API server"    // as the operator dials it

	// The operator does not watch these; check reports them.
	MetalLBPool  = "IPAddressPool"
	EgressPolicy = "CiliumEgressGatewayPolicy"
)

// Claimant is an object that has addresses of the cluster.
type Claimant struct {
	Kind, Name string
	// Asks: it only asks for the addresses, and need not get them.
	Asks bool
}

func (c Claimant) String() string { return c.Kind + " " + c.Name }

// compare sorts claimants that ask for an address behind its owners.
func (c Claimant) compare(other Claimant) int {
	rank := map[bool]int{true: 1}
	return cmp.Or(rank[c.Asks]-rank[other.Asks], cmp.Compare(c.Kind, other.Kind), cmp.Compare(c.Name, other.Name))
}

// Range is an address or a range that no pod may get any part of.
type Range struct {
	CIDR netip.Prefix
	// By is who has it: the first one by kind and name.
	By Claimant
}

// Asked reports whether objects only ask for the addresses. A block that a node holds keeps them.
func (r Range) Asked() bool { return r.By.Asks }

func (r Range) String() string {
	if r.CIDR.IsSingleIP() {
		return r.CIDR.Addr().String() + " of " + r.By.String()
	}
	return r.CIDR.String() + " of " + r.By.String()
}

// Set is the addresses of all claimants. The zero Set is empty and may be used. It
// must not be copied.
type Set struct {
	byClaimant map[Claimant][]netip.Prefix
	claimants  map[netip.Prefix][]Claimant // sorted, never empty
	// index finds the CIDRs that overlap a range in a few steps, however large the set is.
	index ipalloc.Space
}

// Put replaces the CIDRs of a claimant, sorted and unique, without host bits. It returns the
// CIDRs that had no claimant before, the CIDRs that no longer have one, and the CIDRs that it has
// come or ceased to share with others.
func (s *Set) Put(claimant Claimant, cidrs []netip.Prefix) (added, removed, shared []netip.Prefix) {
	old := s.byClaimant[claimant]
	if slices.Equal(old, cidrs) {
		return nil, nil, nil
	}
	if s.byClaimant == nil {
		s.byClaimant = map[Claimant][]netip.Prefix{}
		s.claimants = map[netip.Prefix][]Claimant{}
	}
	for _, p := range cidrs {
		if len(s.claimants[p]) == 0 {
			added = append(added, p)
			_ = s.index.Restore(ipalloc.Held{CIDR: p}) // that another one overlaps it is no conflict here
		} else if !contains(old, p) {
			shared = append(shared, p)
		}
		if i, found := slices.BinarySearchFunc(s.claimants[p], claimant, Claimant.compare); !found {
			s.claimants[p] = slices.Insert(s.claimants[p], i, claimant)
		}
	}
	for _, p := range old {
		if contains(cidrs, p) {
			continue
		}
		if s.drop(claimant, p) {
			removed = append(removed, p)
		} else {
			shared = append(shared, p)
		}
	}
	if s.byClaimant[claimant] = cidrs; len(cidrs) == 0 {
		delete(s.byClaimant, claimant)
	}
	return added, removed, shared
}

// contains reports whether a sorted list contains a CIDR.
func contains(sorted []netip.Prefix, p netip.Prefix) bool {
	_, found := slices.BinarySearchFunc(sorted, p, netip.Prefix.Compare)
	return found
}

// drop ends a claim, and reports whether it was the last one.
func (s *Set) drop(claimant Claimant, p netip.Prefix) bool {
	claimants := slices.DeleteFunc(s.claimants[p], func(c Claimant) bool { return c == claimant })
	if len(claimants) > 0 {
		s.claimants[p] = claimants
		return false
	}
	delete(s.claimants, p)
	s.index.Release(p)
	return true
}

// In returns the ranges that overlap cidr, sorted.
func (s *Set) In(cidr netip.Prefix) []Range {
	if len(s.claimants) == 0 {
		return nil
	}
	var out []Range
	if claimants := s.claimants[cidr]; len(claimants) > 0 {
		out = append(out, Range{CIDR: cidr, By: claimants[0]})
	}
	for _, h := range s.index.Overlapping(cidr) {
		out = append(out, Range{CIDR: h.CIDR, By: s.claimants[h.CIDR][0]})
	}
	slices.SortFunc(out, Range.compare)
	return out
}

// InAll returns the ranges that overlap any of cidrs, sorted, each once.
func (s *Set) InAll(cidrs []netip.Prefix) []Range {
	var out []Range
	for _, p := range cidrs {
		out = append(out, s.In(p)...)
	}
	slices.SortFunc(out, Range.compare)
	return slices.Compact(out)
}

func (r Range) compare(other Range) int { return r.CIDR.Compare(other.CIDR) }

// CIDRs returns the CIDRs of ranges.
func CIDRs(ranges []Range) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(ranges))
	for _, r := range ranges {
		out = append(out, r.CIDR)
	}
	return out
}

// Words describes the first few of some ranges, each with its note, and who has most of the others.
// A nil note adds none.
func Words(ranges []Range, note func(Range) string) string {
	const named = 5
	var parts []string
	for _, r := range ranges[:min(len(ranges), named)] {
		part := r.String()
		if note != nil && note(r) != "" {
			part += " (" + note(r) + ")"
		}
		parts = append(parts, part)
	}
	words := strings.Join(parts, ", ")
	if rest := len(ranges) - named; rest > 0 {
		words += fmt.Sprintf(" and %d more, most of them of %s", rest, mostOf(ranges[named:]))
	}
	return words
}

// mostOf returns the object with the most ranges, or the namespace of Services.
func mostOf(ranges []Range) (most string) {
	count := map[string]int{}
	for _, r := range ranges {
		owner := r.By.String()
		if namespace, _, ok := strings.Cut(r.By.Name, "/"); ok {
			owner = r.By.Kind + "s of namespace " + namespace
		}
		count[owner]++
		if count[owner] > count[most] || count[owner] == count[most] && owner < most {
			most = owner
		}
	}
	return most
}
