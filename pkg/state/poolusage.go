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
	Nodes int // with a block
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

// Full is the share of the blocks that no node can get now, in percent, rounded down. It is 100
// exactly if none is free.
func (u *FamilyUsage) Full() int32 {
	total := u.Status.Blocks.Total
	taken := total - u.Status.Blocks.Free
	if taken >= total {
		return 100
	}
	return int32(min(99, 100*float64(taken)/float64(total)))
}

// NamedNodes is how many nodes a message names at most.
const NamedNodes = 5

// FamiliesOf counts the blocks of each family that a pool has, by the blocks in the ledger.
func FamiliesOf(ledger *Ledger, pool *crd.Pool) []FamilyUsage {
	pool = pool.Skipping(slices.Concat(exclude.CIDRs(ledger.ExcludedFrom(pool)), ledger.AwayPins(pool)))
	return UsageOf(pool, ledger.PoolBlocks(pool.Name), ledger.Free).Families
}

// UsageOf counts a pool's blocks. A nil pool, one that was never valid, has none.
func UsageOf(pool *crd.Pool, blocks iter.Seq[crd.Block], free func(ipalloc.Cut) uint64) PoolUsage {
	var u PoolUsage
	readable := pool != nil && !pool.Frozen()
	nodes := map[string]bool{}
	var held [2]v1alpha1.FamilyStatus
	byCIDR := map[netip.Prefix]int64{}
	tally, unassignable := crd.NewTally(pool), crd.NewTally(pool)
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
			addresses, n := &held[ipalloc.FamilyOf(b.CIDR.Addr())].Addresses, int64(pool.UsableCount(b.CIDR))
			addTo(addresses, b.Phase, n)
			if !pool.Assigns(b.CIDR) {
				unassignable.Add(b)
				addresses.Total += n
			}
			if pool.Skips(b.CIDR) {
				u.Reserved = append(u.Reserved, b)
			}
		}
	}
	u.Nodes, u.First = len(nodes), slices.Sorted(maps.Keys(nodes))
	u.First = u.First[:min(len(u.First), NamedNodes)]
	if !readable {
		return u
	}
	for f, count := range tally.Sum() {
		for phase, n := range count {
			addTo(&held[f].Blocks, ipalloc.Phase(phase), n)
			held[f].Blocks.Total += unassignable.Sum()[f][phase]
		}
	}
	for _, f := range ipalloc.Families() {
		if ranges, has := pool.Ranges(f); has {
			for _, r := range ranges.CIDRs {
				if n := byCIDR[r.CIDR]; n > 0 {
					held[f].CIDRs = append(held[f].CIDRs, v1alpha1.HeldCIDR{CIDR: r.CIDR.String(), Blocks: n})
				}
			}
			u.Families = append(u.Families, familyUsageOf(pool, f, held[f], free))
		}
	}
	return u
}

func addTo(s *v1alpha1.StateCounts, phase ipalloc.Phase, n int64) {
	switch phase {
	case ipalloc.InService:
		s.InService += n
	case ipalloc.Draining:
		s.Draining += n
	case ipalloc.CoolingDown:
		s.CoolingDown += n
	}
}

// familyUsageOf adds what can be assigned and what is free to the held counts. The
// totals of held count blocks that cannot be assigned again.
func familyUsageOf(pool *crd.Pool, f ipalloc.Family, held v1alpha1.FamilyStatus, free func(ipalloc.Cut) uint64) FamilyUsage {
	u := FamilyUsage{Family: f, Status: held, PhasesOut: pool.PhasesOut(f)}
	cut, ok := pool.Cut(f)
	if !ok || pool.Deleting {
		return u
	}
	n := free(cut)
	u.Status.Blocks.Free = saturate(n)
	u.Status.Blocks.Total = sum(saturate(pool.TotalBlocks(cut)), held.Blocks.Total)
	u.Status.Addresses.Total = sum(pool.TotalAddresses(cut), held.Addresses.Total)
	size := usableSize(pool, f, cut.BlockBits)
	taken := held.Addresses.InService + held.Addresses.Draining + held.Addresses.CoolingDown
	if left := u.Status.Addresses.Total - taken; float64(n)*size > float64(left) {
		u.Status.Addresses.Free = max(0, left)
	} else {
		u.Status.Addresses.Free = saturate(n * uint64(size))
	}
	return u
}

// usableSize is how many addresses of a block without reserved ones pods can have.
func usableSize(pool *crd.Pool, f ipalloc.Family, bits int) float64 {
	size := math.Ldexp(1, f.Bits()-bits)
	ranges, ok := pool.Ranges(f)
	if !ok || size <= 2 {
		return size
	}
	if !ranges.AllowFirst {
		size--
	}
	if !ranges.AllowLast {
		size--
	}
	return size
}

func saturate(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// sum adds two non-negative counts and saturates.
func sum(a, b int64) int64 { return saturate(uint64(a) + uint64(b)) }

// agentOwn is how many addresses an agent uses itself: router and health endpoint.
const agentOwn = 2

// Room returns how many more nodes fit into the free blocks of one family of a pool. A new node gets
// blocks for the addresses of its agent, and for what its policy keeps free.
func Room(pool *crd.Pool, f ipalloc.Family, free int64) int64 {
	ranges, ok := pool.Ranges(f)
	if !ok {
		return free
	}
	empty := expand.State{Family: f}
	for i := range agentOwn {
		empty.Pods = append(empty.Pods, expand.Pod{Name: fmt.Sprint(i)})
	}
	plan, _ := expand.Decide(time.Time{}, pool.Policy, empty, expand.Memory{})
	blocks := math.Ceil(float64(plan.Claim.Addresses) / usableSize(pool, f, ranges.Bits))
	return free / max(1, min(int64(blocks), int64(plan.Claim.Blocks)))
}

// Press records in p how full a pool is. One that assigns nothing exerts no pressure: no node waits
// for the blocks that come back to it.
func Press(p *Pressure, pool *crd.Pool, families []FamilyUsage) {
	for i := range families {
		f, taken := &families[i], 0
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

// CooldownsOf returns the cooldowns among the blocks of a pool that nodes can get again.
func CooldownsOf(pool *crd.Pool, f ipalloc.Family, blocks iter.Seq[crd.Block]) Cooldowns {
	var c Cooldowns
	for b := range blocks {
		if b.Phase != ipalloc.CoolingDown || ipalloc.FamilyOf(b.CIDR.Addr()) != f || !pool.Assigns(b.CIDR) {
			continue
		}
		c.Blocks++
		if ends := b.Since.Add(cooldownIn(pool, b)); c.First.IsZero() || ends.Before(c.First) {
			c.First = ends
		}
	}
	return c
}

// String describes the number of cooling blocks, and the time when the first is free again.
func (c Cooldowns) String() string {
	const free = "free again at %s at the earliest"
	at := c.First.UTC().Format(time.RFC3339)
	switch c.Blocks {
	case 0:
		return "no block cools down"
	case 1:
		return fmt.Sprintf("one block cools down, and is "+free, at)
	}
	return fmt.Sprintf("%d blocks cool down, and the first is "+free, c.Blocks, at)
}

func cooldownIn(pool *crd.Pool, b crd.Block) time.Duration {
	if b.Reason == expand.NodeGone {
		return pool.NodeGoneCooldown
	}
	return pool.Cooldown
}
