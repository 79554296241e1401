package expand

import (
	"net/netip"
	"slices"
)

// A plan counts the addresses that the limits of a node keep from its pods: Plan.Shortage. Its writes may bring fewer
// addresses than planned: a Shortfall. Both together make the Balance. Its Missing is the shortage of a node: the number of
// addresses that its pods wait for and cannot get, without the reserve. The Node's condition and taint, events, metrics,
// check and kubectl cilium-pool report that number, or that it is not zero.

// Shortfall is the addresses of a Plan that its writes did not bring.
type Shortfall struct {
	// Exhausted is the number that the claims fell short as no pool has a free block.
	Exhausted int
	// Unwritten is the number that claims and publishing fell short as a write failed, and Unpublished the
	// part of them that the plan's Capacity counts.
	Unwritten, Unpublished int
}

// Balance is the arithmetic of a share's addresses once its plan has been carried out.
type Balance struct {
	// Demand is the number of addresses that its agent and its pods need now, Has the number that they can use, and
	// Coming the number that is being claimed.
	Demand, Has, Coming int
	// Wanted is the number that the share wants and cannot get, the reserve of its policy included. Missing is the
	// number that pods wait for and cannot get.
	Wanted, Missing int
}

// BalanceOf returns the balance of a share with a plan. If nothing may change on the node, the plan is not carried
// out: no address is coming, and the reserve does not count.
func BalanceOf(s *State, p Plan, f Shortfall, mayChange bool) Balance {
	b := Balance{Demand: p.Demand, Has: p.Capacity - f.Unpublished + p.ServedElsewhere}
	if mayChange {
		b.Coming = max(0, p.Claim.Addresses-f.Exhausted-f.Unwritten)
		b.Wanted = max(p.Shortage, f.Exhausted+f.Unwritten)
	} else {
		b.Wanted = max(0, b.Demand-b.Has)
	}
	if mayChange && s.RunsWithAnother() { // its agent does not start again without a block
		b.Wanted = max(1, b.Wanted)
	}
	if b.Wanted > 0 {
		b.Missing = max(0, p.Shortage, b.Demand-b.Has-b.Coming)
	}
	return b
}

// AsPublished returns a state that leaves no more addresses to publish, as nothing may change on the node.
func (s State) AsPublished() State {
	s.Blocks = slices.Clone(s.Blocks)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.Usable = slices.DeleteFunc(slices.Clone(b.Usable), func(a netip.Addr) bool {
			_, published := s.Pool[a]
			return !published
		})
		if !b.Listed {
			b.Size = 0
		}
	}
	return s
}
