package world

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// pacingRules judge when, and how fast, blocks begin to leave.
type pacingRules struct{ *World }

// knownPools are the pools that an operator's handlers have received.
type knownPools struct {
	now map[string]*v1alpha1.PodIPPool
	// edited are those whose maintenance has changed since.
	edited map[string]bool
}

func (k *knownPools) tell(n notice) {
	if k == nil {
		return
	}
	name := keyOf(cmpOr(n.now, n.old))
	now, _ := n.now.(*v1alpha1.PodIPPool)
	old := k.now[name]
	if old != nil && (now == nil || !equality.Semantic.DeepEqual(old.Spec.Maintenance, now.Spec.Maintenance)) {
		k.edited[name] = true
	}
	if k.now[name] = now; now == nil {
		delete(k.now, name)
	}
}

func cmpOr(a, b client.Object) client.Object {
	if a == nil {
		return b
	}
	return a
}

// ruling returns the pool whose thresholds apply to a family on a node with these labels, or
// nil. A pool that gives out no blocks comes after all that do, unless it is paused.
func (k *knownPools) ruling(v4 bool, of labels.Set) *v1alpha1.PodIPPool {
	var first, last *v1alpha1.PodIPPool
	for _, name := range sortedKeys(k.now) {
		p := k.now[name]
		cidrs, _ := ranges(p, v4)
		if len(cidrs) == 0 || p.DeletionTimestamp != nil || !selects(p, of) {
			continue
		}
		best := &last
		if p.Spec.Paused || slices.ContainsFunc(cidrs, allocates) {
			best = &first
		}
		if *best == nil || p.Spec.Priority > (*best).Spec.Priority {
			*best = p
		}
	}
	if first == nil {
		return last
	}
	return first
}

// chances are what a reconcile was allowed to begin at any time since it started.
type chances struct {
	// reclaim by family, IPv4 first; drain by pool.
	reclaim [2]bool
	drain   map[string]bool
	// ruling are the pools that ruled a family during that time.
	ruling [2]map[string]bool
	// recalled are the blocks that the node should have returned at once.
	recalled []netip.Prefix
}

// chance records what an operator is allowed to begin now.
func (f *flight) chance(o *Operator) {
	if o.meter == nil || f.controller != nodes {
		return
	}
	m, now, known := o.w.cfg.Maintenance, processClock{o}.Now(), o.meter.pools
	if f.may.drain == nil {
		f.may = chances{drain: map[string]bool{}, ruling: [2]map[string]bool{{}, {}}}
	}
	_, recalled := o.w.offers.needsOf(o, f.name, ipalloc.IPv4)
	f.may.recalled = append(f.may.recalled, recalled...)
	for _, pool := range slices.Concat(o.w.cfg.Pools, []*v1alpha1.PodIPPool{o.w.cfg.Other}) {
		if pool == nil {
			continue
		}
		spec := known.now[pool.Name]
		f.may.drain[pool.Name] = f.may.drain[pool.Name] || spec == nil || m.isOpen(spec, now)
	}
	for i, v4 := range []bool{true, false} {
		pool := known.ruling(v4, o.knownLabels(f.name))
		if pool == nil {
			f.may.ruling[i][""] = true
			continue
		}
		f.may.ruling[i][pool.Name] = true
		f.may.reclaim[i] = f.may.reclaim[i] || m.isOpen(pool, now)
	}
}

// meter counts what a process has begun. Like the process's memory, it restarts with the
// process.
type meter struct {
	since    time.Time // by its own clock
	begun    map[string]int
	reclaims map[string]int
	pools    *knownPools
}

func newMeter(now time.Time) *meter {
	return &meter{
		since: now, begun: map[string]int{}, reclaims: map[string]int{},
		pools: &knownPools{now: map[string]*v1alpha1.PodIPPool{}, edited: map[string]bool{}},
	}
}

// phaseOf returns the condition of a block that is True; "": it is in service.
func phaseOf(b *v1alpha1.PodIPBlock) string {
	for _, c := range []string{v1alpha1.BlockCoolingDown, v1alpha1.BlockDraining} {
		if b != nil && meta.IsStatusConditionTrue(b.Status.Conditions, c) {
			return c
		}
	}
	return ""
}

// checkBegin checks a block that begins to drain: that its pool's windows allow it, that the
// hourly limit is kept, and that the block was idle.
func (r *pacingRules) checkBegin(v Version) {
	old, _ := v.Old.(*v1alpha1.PodIPBlock)
	now, _ := v.New.(*v1alpha1.PodIPBlock)
	o := r.rules.writer
	if o.meter == nil || old == nil || now == nil || phaseOf(old) != "" || phaseOf(now) != v1alpha1.BlockDraining {
		return
	}
	why := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.BlockDraining).Reason
	cidr, family := netip.MustParsePrefix(now.Spec.CIDR), 1
	if cidr.Addr().Is4() {
		family = 0
	}
	if r.overlapped(v.Key, cidr) || len(o.parts.Node.Ledger.Overlaps(cidr)) > 0 {
		return // it serves no pod, and is withdrawn at any time
	}
	may := o.current.may
	switch why {
	case v1alpha1.ReasonDeleted, v1alpha1.ReasonPoolChanged:
	case v1alpha1.ReasonReclaim:
		if !slices.Contains(may.recalled, cidr) { // pods may have ceased to wait since it was decided
			r.checkIdle(v.Key)
		}
		r.checkReclaimAllowed(v.Key, family)
	default:
		if open, known := may.drain[now.Spec.PoolName]; known && !open {
			r.violate(10, "block %s began to drain (%s) while no maintenance window of pool %s was open", v.Key, why, now.Spec.PoolName)
		}
		r.checkRate(now.Spec.PoolName)
	}
}

// checkReclaimAllowed checks that the windows and rates of its pool allow a block to be
// reclaimed.
func (r *pacingRules) checkReclaimAllowed(block string, family int) {
	o, may := r.rules.writer, r.rules.writer.current.may
	if !may.reclaim[family] {
		r.violate(10, "block %s began to be reclaimed while no maintenance window of %v was open", block, sortedKeys(may.ruling[family]))
	}
	if payers := slices.Collect(maps.Keys(may.ruling[family])); len(payers) == 1 {
		r.checkRate(payers[0])
		r.checkReclaims(payers[0], o.settings.ReclaimsPerMinutePerPool)
	}
	r.checkReclaims("", o.settings.ReclaimsPerMinute)
}

// checkIdle checks that a block was idle for the minimum time, counted at the earliest from the
// start of the process.
func (r *pacingRules) checkIdle(block string) {
	o := r.rules.writer
	least := o.settings.Defaults.Policy.IdleFor
	if o.settings.Defaults.Policy.PressurePercent > 0 {
		least /= 10 // of a full pool
	}
	if ran := (processClock{o}).Now().Sub(o.meter.since); ran < least {
		r.violate(10, "block %s began to be reclaimed %s after the operator had started, and has to be idle for %s", block, ran, least)
	}
}

// checkRate checks that no more of a pool's blocks begin to drain than its rate allows: a
// minute's worth at once, then blocksPerHour.
func (r *pacingRules) checkRate(pool string) {
	m := r.rules.writer.meter
	m.begun[pool]++
	spec := m.pools.now[pool]
	if spec == nil || m.pools.edited[pool] {
		return
	}
	n := r.cfg.Maintenance.of(spec).BlocksPerHour
	if n == nil || *n == 0 {
		return
	}
	ran := (processClock{r.rules.writer}).Now().Sub(m.since)
	if most := float64(max(1, int(*n)/60)) + float64(*n)*ran.Hours(); float64(m.begun[pool]) > most+.001 {
		r.violate(10, "%d blocks of pool %s began to leave within %s, where %d an hour may", m.begun[pool], pool, ran, *n)
	}
}

// checkReclaims checks the rate of reclaims set by the operators' flags, of a pool or, for "",
// of all.
func (r *pacingRules) checkReclaims(of string, perMinute int) {
	m := r.rules.writer.meter
	m.reclaims[of]++
	ran := (processClock{r.rules.writer}).Now().Sub(m.since)
	most := float64(max(1, perMinute/10)) + float64(perMinute)*ran.Minutes()
	if perMinute > 0 && float64(m.reclaims[of]) > most+.001 {
		r.violate(10, "%d reclaims of pool %q began within %s, where %d a minute may", m.reclaims[of], of, ran, perMinute)
	}
}

// checkMoves checks a block that begins to drain because its pool does not select its node: that
// the operator knew so, and that no more of the nodes that this process allowed are moving off
// the pool than may at a time.
func (r *pacingRules) checkMoves(v Version) {
	old, _ := v.Old.(*v1alpha1.PodIPBlock)
	now, _ := v.New.(*v1alpha1.PodIPBlock)
	if old == nil || now == nil || phaseOf(old) != "" || !movesOff(now) {
		return
	}
	o, node := r.rules.writer, now.Spec.NodeName
	pool, ok := r.api.Get(KindPool, now.Spec.PoolName).(*v1alpha1.PodIPPool)
	if !ok {
		return
	}
	if o.current.stays[pool.Name] && o.stays(node)[pool.Name] {
		r.violate(10, "block %s began to leave node %s, which pool %s selects, or whose labels are not final", v.Key, node, pool.Name)
	}
	if o.moves == nil {
		o.moves = map[types.UID]string{}
	}
	others := o.movingBeside(node, pool.Name)
	o.moves[now.UID] = node
	if len(others) >= maxMoves(pool) {
		r.violate(10, "node %s began to move off pool %s while %v did, and %d may at a time", node, pool.Name, sortedKeys(others), maxMoves(pool))
	}
}
