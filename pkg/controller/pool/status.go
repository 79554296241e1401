package pool

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Reasons of a pool's conditions.
const (
	ReasonServing = "Serving"
	ReasonInvalid = "Invalid"
	ReasonPaused  = "Paused"
	// ReasonNoCiliumPools: the pool names a Cilium pool in a mode that has none.
	ReasonNoCiliumPools = "NoCiliumPools"
	ReasonDeleting      = "WaitsForBlocks"
	ReasonOverlapping   = "OverlapsOlderPool"
	ReasonExhausted     = "NoFreeBlock"
	// ReasonNodesShort: pods of nodes that the pool selects wait, as no pool has a block.
	ReasonNodesShort = "NodesShort"
	ReasonFreeBlocks = "FreeBlocks"
	ReasonSeparate   = "NoOverlap"
	// ReasonPhasingOut: all CIDRs of the pool are cordoned or draining. ReasonEmpty:
	// and no block is left.
	ReasonPhasingOut = "PhasingOut"
	ReasonEmpty      = "Empty"
)

// poolUsage is how much of a pool is held, and by whom.
type poolUsage struct {
	nodes int // with a block
	// idle: the operator is paused or runs in shadow, and changes no node.
	idle bool
	// first are the first few of the nodes, sorted.
	first       []string
	held        int // blocks, of any size
	families    []familyUsage
	coolingDown []crd.Block // in no order
	served
	// reserved are the held blocks, in no order, that the pool would not assign again
	// because they overlap a reserved range or an address of a node or Service.
	reserved []crd.Block
	// excluded are the addresses of nodes and Services that the pool covers.
	excluded []exclude.Range
}

type familyUsage struct {
	family    ipalloc.Family
	status    v1alpha1.FamilyStatus
	phasesOut bool
}

// full is the share of a family's blocks that no node can get now, in percent, rounded
// down. It is 100 exactly if none is free.
func full(blocks v1alpha1.StateCounts) int32 { return percent(blocks.Total-blocks.Free, blocks.Total) }

// Counts are the counts of one family of a pool, as its status has them, and the share of
// its blocks that no node can get now, in percent.
type Counts struct {
	v1alpha1.FamilyStatus
	UtilizationPercent int32
}

// CountsOf returns the counts of each family that a pool has. Its blocks are those in the
// ledger.
func CountsOf(ledger *state.Ledger, pool *crd.Pool) map[ipalloc.Family]Counts {
	counts := map[ipalloc.Family]Counts{}
	for _, f := range countsOf(ledger, pool) {
		counts[f.family] = Counts{f.status, full(f.status.Blocks)}
	}
	return counts
}

func countsOf(ledger *state.Ledger, pool *crd.Pool) []familyUsage {
	pool = pool.Skipping(exclude.CIDRs(ledger.ExcludedFrom(pool)))
	return usageOf(pool, 0, ledger.PoolBlocks(pool.Name), ledger.Free).families
}

// phasesOut reports whether every family of the pool phases out.
func (u *poolUsage) phasesOut() bool {
	return len(u.families) > 0 && !slices.ContainsFunc(u.families, func(f familyUsage) bool { return !f.phasesOut })
}

// usageOf counts a pool's blocks, which this many nodes have. A nil pool, one that was never
// valid, has none.
func usageOf(pool *crd.Pool, nodes int, blocks iter.Seq[crd.Block], free func(ipalloc.Cut) uint64) poolUsage {
	var u poolUsage
	readable := pool != nil && !pool.Frozen()
	var held [2]v1alpha1.FamilyStatus
	tally, unassignable := crd.NewTally(pool), crd.NewTally(pool)
	for b := range blocks {
		u.first = withFirst(u.first, b.Node)
		u.held++
		if b.Phase == ipalloc.CoolingDown {
			u.coolingDown = append(u.coolingDown, b)
		}
		if readable {
			tally.Add(b)
			addresses, n := &held[ipalloc.FamilyOf(b.CIDR.Addr())].Addresses, int64(pool.UsableCount(b.CIDR))
			addTo(addresses, b.Phase, n)
			if !pool.Assigns(b.CIDR) {
				unassignable.Add(b)
				addresses.Total += n
			}
			if pool.Skips(b.CIDR) {
				u.reserved = append(u.reserved, b)
			}
		}
	}
	u.nodes = max(len(u.first), min(nodes, u.held)) // blocks may have come or gone since
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
		if _, has := pool.Ranges(f); has {
			u.families = append(u.families, familyUsageOf(pool, f, held[f], free))
		}
	}
	return u
}

// withFirst adds a node to the first few, unless it comes after them or is one of them.
func withFirst(first []string, node string) []string {
	i, there := slices.BinarySearch(first, node)
	if there || i == namedNodes {
		return first
	}
	first = slices.Insert(first, i, node)
	return first[:min(len(first), namedNodes)]
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
func familyUsageOf(pool *crd.Pool, f ipalloc.Family, held v1alpha1.FamilyStatus, free func(ipalloc.Cut) uint64) familyUsage {
	u := familyUsage{family: f, status: held, phasesOut: pool.PhasesOut(f)}
	cut, ok := pool.Cut(f)
	if !ok || pool.Deleting {
		return u
	}
	n := free(cut)
	u.status.Blocks.Free = saturate(n)
	u.status.Blocks.Total = sum(saturate(pool.TotalBlocks(cut)), held.Blocks.Total)
	u.status.Addresses.Total = sum(pool.TotalAddresses(cut), held.Addresses.Total)
	size := usableSize(pool, f, cut.BlockBits)
	taken := held.Addresses.InService + held.Addresses.Draining + held.Addresses.CoolingDown
	if left := u.status.Addresses.Total - taken; float64(n)*size > float64(left) {
		u.status.Addresses.Free = max(0, left)
	} else {
		u.status.Addresses.Free = saturate(n * uint64(size))
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

// fill writes the counts into a status.
func (u poolUsage) fill(s *v1alpha1.PodIPPoolStatus) {
	s.Nodes = int32(min(u.nodes, math.MaxInt32))
	s.IPv4, s.IPv6, s.UtilizationPercent = nil, nil, nil
	for _, f := range u.families {
		status := f.status
		if f.family == ipalloc.IPv4 {
			s.IPv4 = &status
		} else {
			s.IPv6 = &status
		}
		if share := full(status.Blocks); s.UtilizationPercent == nil || share > *s.UtilizationPercent {
			s.UtilizationPercent = &share
		}
	}
}

// percent is part as a share of whole, rounded down and capped at 100. It is 100 for a
// whole of zero.
func percent(part, whole int64) int32 {
	if part >= whole {
		return 100
	}
	return int32(min(99, 100*float64(part)/float64(whole)))
}

// setConditions derives the conditions of a pool.
func setConditions(obj *v1alpha1.PodIPPool, pool *crd.Pool, invalid error, u poolUsage, now time.Time) {
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	setReserved(obj, pool, u, now)
	if overlap := overlapMessage(pool); overlap != "" {
		set(v1alpha1.PoolOverlapping, metav1.ConditionTrue, ReasonOverlapping, overlap)
	} else {
		set(v1alpha1.PoolOverlapping, metav1.ConditionFalse, ReasonSeparate, "no other pool claims these addresses")
	}
	setExhausted(set, u, exhaustedMessage(pool, u))
	setReady(set, obj, pool, invalid, u)
	if i := slices.IndexFunc(obj.Status.Conditions, isReady); i > 0 { // people read it first
		ready := obj.Status.Conditions[i]
		obj.Status.Conditions = slices.Insert(slices.Delete(obj.Status.Conditions, i, i+1), 0, ready)
	}
}

func isReady(c metav1.Condition) bool { return c.Type == v1alpha1.PoolReady }

// setCondition sets a condition of a pool.
type setCondition func(kind string, status metav1.ConditionStatus, reason, message string)

func setExhausted(set setCondition, u poolUsage, exhausted string) {
	switch {
	case len(u.families) == 0:
		set(v1alpha1.PoolExhausted, metav1.ConditionUnknown, ReasonInvalid, "the spec cannot be read")
	case u.phasesOut():
		set(v1alpha1.PoolExhausted, metav1.ConditionFalse, ReasonPhasingOut, "the pool assigns no new blocks")
	case exhausted != "":
		set(v1alpha1.PoolExhausted, metav1.ConditionTrue, ReasonExhausted, exhausted)
	default:
		set(v1alpha1.PoolExhausted, metav1.ConditionFalse, ReasonFreeBlocks, "free blocks are left")
	}
}

func setReady(set setCondition, obj *v1alpha1.PodIPPool, pool *crd.Pool, invalid error, u poolUsage) {
	overlap, exhausted, waits := overlapMessage(pool), exhaustedMessage(pool, u), u.waits()
	switch {
	case obj.DeletionTimestamp != nil:
		set(v1alpha1.PoolReady, metav1.ConditionFalse, ReasonDeleting, u.deleted())
	case invalid != nil:
		set(v1alpha1.PoolReady, metav1.ConditionFalse, ReasonInvalid, strings.ReplaceAll(invalid.Error(), "\n", "; ")+
			". "+servesMeanwhile(pool))
	case pool != nil && pool.Inactive:
		set(v1alpha1.PoolReady, metav1.ConditionFalse, ReasonNoCiliumPools, "spec.ciliumPoolName is "+pool.CiliumPool+
			", and agents have no pools to choose from in the mode that the operator runs in: it serves no node. Run both in multi-pool mode, or make a pool without ciliumPoolName")
	case obj.Spec.Paused:
		set(v1alpha1.PoolReady, metav1.ConditionFalse, ReasonPaused, "spec.paused is set: nothing changes on the nodes of this pool")
	case overlap != "" && !u.phasesOut():
		set(v1alpha1.PoolReady, metav1.ConditionFalse, ReasonOverlapping, overlap)
	case waits != "" && exhausted == "":
		set(v1alpha1.PoolReady, metav1.ConditionFalse, ReasonNodesShort, waits+". This pool assigns none of a family, as all its CIDRs are cordoned or drain")
	case waits != "":
		set(v1alpha1.PoolReady, metav1.ConditionFalse, ReasonNodesShort, waits+": see the condition Exhausted")
	case u.phasesOut() && u.held == 0:
		set(v1alpha1.PoolReady, metav1.ConditionTrue, ReasonEmpty, "no node holds a block, and no CIDR allocates new ones: the pool can be deleted")
	case u.phasesOut():
		set(v1alpha1.PoolReady, metav1.ConditionTrue, ReasonPhasingOut, fmt.Sprintf("no CIDR allocates new blocks; blocks that are left: %d, on %s", u.held, nodesLine(u.first, u.nodes)))
	case exhausted != "":
		set(v1alpha1.PoolReady, metav1.ConditionTrue, ReasonServing, "no free block is left (see Exhausted), and no Node reports that its pods wait for one")
	default:
		set(v1alpha1.PoolReady, metav1.ConditionTrue, ReasonServing, u.serving())
	}
}

// deleted says what a deleted pool waits for.
func (u *poolUsage) deleted() string {
	if u.held == 0 {
		return "deleted; its finalizer goes once the operator sees no block of it and may write the pool"
	}
	return "deleted; waits for the blocks of " + nodesLine(u.first, u.nodes)
}

func (u *poolUsage) serving() string {
	if u.idle {
		return "the operator is paused or runs in shadow, and gives nodes no blocks until that ends"
	}
	return "nodes get blocks of this pool as they need them"
}

// servesMeanwhile describes how an invalid pool serves until its spec is corrected.
func servesMeanwhile(pool *crd.Pool) string {
	if pool.Frozen() {
		return "Correct the spec; until then the pool assigns no block, and its nodes take blocks of the next pool that selects them"
	}
	return "Nodes get blocks of this pool all the same"
}

func overlapMessage(pool *crd.Pool) string {
	if pool == nil {
		return ""
	}
	var parts []string
	for _, f := range ipalloc.Families() {
		ranges, ok := pool.Ranges(f)
		if !ok {
			continue
		}
		for _, rng := range ranges.CIDRs {
			if rng.ClosedBy != "" {
				parts = append(parts, fmt.Sprintf("%s assigns nothing, as it overlaps %s of pool %s, which is older or, at the same age, first by name", rng.CIDR, rng.Overlap, rng.ClosedBy))
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + ". Nodes keep the blocks that they have. Take the range out of one of the two pools"
}

func exhaustedMessage(pool *crd.Pool, u poolUsage) string {
	var parts []string
	for i := range u.families {
		if f := &u.families[i]; f.status.Blocks.Free == 0 && !f.phasesOut {
			parts = append(parts, fmt.Sprintf("no free block left for %s; %s%s%s",
				f.family, state.CooldownsOf(pool, f.family, slices.Values(u.coolingDown)), u.by(f.family), u.instead(f.family)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ". And ") + ". Add a CIDR to spec, or a pool of lower priority for the same nodes"
}
