package state

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// PoolUsage is how much of a pool nodes have.
type PoolUsage struct {
	Selected int // Nodes; UsageOf leaves it 0
	Nodes    int // with a block
	// First are the first few of the nodes, sorted.
	First       []string
	Held        int // blocks, of any size
	Families    []FamilyUsage
	CoolingDown []crd.Block // in no order
	// Reserved are the held blocks, in no order, that the pool would not assign again
	// because they overlap a reserved range or an address of a node or Service.
	Reserved []crd.Block
}

// FamilyUsage is how much of one family of a pool nodes have, as the pool's status says it.
type FamilyUsage struct {
	Family    ipalloc.Family
	Status    v1alpha1.FamilyStatus
	PhasesOut bool
}

// Full is the heldPercent of the family.
func (u *FamilyUsage) Full() int32 {
	blocks := &u.Status.Blocks
	if blocks.Free == 0 {
		return 100
	}
	return int32(min(99, 100*float64(blocks.Held)/float64(blocks.Assignable)))
}

// NamedNodes is how many nodes a message names at most.
const NamedNodes = 5

// FamiliesOf counts the blocks of each family that a pool has, by the blocks in the ledger.
func FamiliesOf(ledger *Ledger, pool *crd.Pool) []FamilyUsage {
	pool = pool.WithSkipped(slices.Concat(exclude.CIDRs(ledger.Exclusions.ExcludedFrom(pool)), ledger.Pins.Away(pool)))
	return UsageOf(pool, ledger.PoolBlocks(pool.Name), ledger.Free).Families
}

// UsageOf counts a pool's blocks. A nil pool, one that was never valid, has none.
func UsageOf(pool *crd.Pool, blocks iter.Seq[crd.Block], free func(ipalloc.Cut) uint64) PoolUsage {
	var u PoolUsage
	readable := pool != nil && !pool.Frozen()
	nodes := map[string]bool{}
	var statuses [2]v1alpha1.FamilyStatus
	var reusable [2]int64 // held addresses that can be assigned again
	byCIDR := map[netip.Prefix]int64{}
	tally := crd.NewTally(pool)
	for b := range blocks {
		nodes[b.Node] = true
		u.Held++
		if b.Phase == ipalloc.CoolingDown {
			u.CoolingDown = append(u.CoolingDown, b)
		}
		if readable {
			tally.Add(b)
			if r, ok := pool.RangeOf(b.CIDR); ok {
				byCIDR[r.CIDR]++
			}
			f := ipalloc.FamilyOf(b.CIDR.Addr())
			n := int64(pool.UsableCount(b.CIDR))
			addTo(&statuses[f].Addresses.StateCounts, b.Phase, n)
			if pool.Assigns(b.CIDR) {
				reusable[f] += n
			}
			if pool.Skips(b.CIDR) {
				u.Reserved = append(u.Reserved, b)
			}
		}
	}
	u.Nodes = len(nodes)
	u.First = slices.Sorted(maps.Keys(nodes))
	u.First = u.First[:min(len(u.First), NamedNodes)]
	if !readable {
		return u
	}
	for f, count := range tally.Sum() {
		for phase, n := range count {
			addTo(&statuses[f].Blocks, ipalloc.Phase(phase), n)
		}
	}
	for _, f := range ipalloc.Families() {
		if ranges, known := pool.Ranges(f); known {
			for _, r := range ranges.CIDRs {
				if n := byCIDR[r.CIDR]; n > 0 {
					statuses[f].CIDRs = append(statuses[f].CIDRs, v1alpha1.HeldCIDR{CIDR: r.CIDR.String(), Blocks: n})
				}
			}
			u.Families = append(u.Families, familyUsageOf(pool, f, statuses[f], reusable[f], free))
		}
	}
	return u
}

func addTo(s *v1alpha1.StateCounts, phase ipalloc.Phase, n int64) {
	s.Held += n
	s.Assignable += n
	switch phase {
	case ipalloc.InService:
		s.InService += n
	case ipalloc.Draining:
		s.Draining += n
	case ipalloc.CoolingDown:
		s.CoolingDown += n
	}
}

// familyUsageOf adds the free blocks and addresses to the held ones, of which reusable addresses
// can be assigned again.
func familyUsageOf(pool *crd.Pool, f ipalloc.Family, status v1alpha1.FamilyStatus, reusable int64, free func(ipalloc.Cut) uint64) FamilyUsage {
	u := FamilyUsage{Family: f, Status: status, PhasesOut: pool.PhasesOut(f)}
	cut, ok := pool.Cut(f)
	if !ok || pool.Deleting {
		return u
	}
	n := free(cut)
	size := float64(pool.AddressesPerBlock(f))
	addresses := max(0, pool.TotalAddresses(cut)-reusable)
	if float64(n)*size < float64(addresses) {
		addresses = saturate(n * uint64(size))
	}
	addFree(&u.Status.Blocks, n)
	addFree(&u.Status.Addresses.StateCounts, uint64(addresses))
	return u
}

func addFree(s *v1alpha1.StateCounts, n uint64) {
	s.Free = saturate(n)
	s.Assignable = saturate(uint64(s.Held) + uint64(s.Free))
}

// saturate keeps a count within what a JSON number holds exactly.
func saturate(n uint64) int64 { return int64(min(n, 1<<53-1)) }

// usualAgentOwn is how many addresses an agent uses itself in most clusters: router and health endpoint.
const usualAgentOwn = 2

// PodsPerBlock returns the number of pods that have addresses of one block of each family of a pool,
// beside the agent.
func PodsPerBlock(pool *crd.Pool) int {
	pods := math.MaxInt
	for _, f := range ipalloc.Families() {
		if _, ok := pool.Ranges(f); ok {
			pods = min(pods, max(0, pool.AddressesPerBlock(f)-usualAgentOwn))
		}
	}
	return pods
}

// NodesThatFit returns how many more nodes fit into the free blocks of one family of a pool. A new node gets
// blocks for the addresses of its agent, and for what its policy keeps free.
func NodesThatFit(pool *crd.Pool, f ipalloc.Family, free int64) int64 {
	return free / max(1, BlocksFor(pool, f, usualAgentOwn))
}

// BlocksFor returns the number of blocks of a pool that a node gets which uses so many addresses, and
// has no block yet.
func BlocksFor(pool *crd.Pool, f ipalloc.Family, used int) int64 {
	perBlock := pool.AddressesPerBlock(f)
	if perBlock == 0 {
		return 1
	}
	s := expand.State{Family: f}
	for i := range used {
		s.Pods = append(s.Pods, expand.Pod{Name: fmt.Sprint(i)})
	}
	plan, _ := expand.Decide(time.Time{}, pool.Policy, s, expand.Budget{}, expand.Memory{})
	blocks := math.Ceil(float64(plan.Claim.Addresses) / float64(perBlock))
	return min(int64(blocks), int64(plan.Claim.Blocks))
}

// Press records in p how full a pool is. One that assigns nothing exerts no pressure: no node waits
// for the blocks that come back to it.
func Press(p *Pressure, pool *crd.Pool, families []FamilyUsage) {
	for i := range families {
		f := &families[i]
		taken := 0
		if _, assigns := pool.Cut(f.Family); assigns {
			taken = int(f.Full())
		}
		p.Set(pool, f.Family, taken)
	}
}

// Cooldowns are the blocks that cool down and come back to their pool.
type Cooldowns struct {
	// Blocks is their number.
	Blocks int
	// First is when the first cooldown ends; zero if there is none.
	First time.Time
}

// Cooldowns returns the cooldowns of blocks of a pool that come back to nodes.
func (l *Ledger) Cooldowns(pool *crd.Pool, f ipalloc.Family) Cooldowns {
	return CooldownsOf(pool, f, func(yield func(crd.Block) bool) {
		for b := range l.PoolBlocks(pool.Name) {
			if b.Phase == ipalloc.CoolingDown && l.ComesBack(pool, b.CIDR) && !yield(b) {
				return
			}
		}
	})
}

// CooldownsOf returns the cooldowns among blocks of a pool that come back to nodes.
func CooldownsOf(pool *crd.Pool, f ipalloc.Family, blocks iter.Seq[crd.Block]) Cooldowns {
	var c Cooldowns
	for b := range blocks {
		if b.Phase != ipalloc.CoolingDown || ipalloc.FamilyOf(b.CIDR.Addr()) != f {
			continue
		}
		c.Blocks++
		if end := b.Since.Add(cooldownIn(pool, b)); c.First.IsZero() || end.Before(c.First) {
			c.First = end
		}
	}
	return c
}

// String describes the number of cooling blocks, and the time when the first is free again.
func (c Cooldowns) String() string {
	const free = "free again at %s at the earliest"
	first := c.First.UTC().Format(time.RFC3339)
	switch c.Blocks {
	case 0:
		return "no block cools down"
	case 1:
		return fmt.Sprintf("one block cools down, and is "+free, first)
	}
	return fmt.Sprintf("%d blocks cool down, and the first is "+free, c.Blocks, first)
}

func cooldownIn(pool *crd.Pool, b crd.Block) time.Duration {
	if b.Reason == expand.NodeGone {
		return pool.NodeGoneCooldown
	}
	return pool.Cooldown
}
