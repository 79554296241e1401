package state

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Pools is this process's knowledge of PodIPPools, with overlaps between them resolved. All of it
// derives from the current objects and the flags, so a restart makes no difference. It is safe for
// concurrent use; the pools it returns are read-only.
type Pools struct {
	defaults crd.Defaults
	ledger   *Ledger

	mu    sync.RWMutex
	known map[string]poolRecord
	// resolved are the pools as Get returns them. A change replaces the whole map.
	resolved map[string]*crd.Pool
}

// poolRecord is a pool before its overlaps are resolved.
type poolRecord struct {
	version poolVersion
	pool    *crd.Pool // frozen if it cannot serve
	invalid error     // its problems, whether or not it serves
}

// poolVersion identifies the parts of a pool that decisions depend on.
type poolVersion struct {
	uid        types.UID
	generation int64
	deleting   bool
}

// NewPools returns an empty Pools. It reserves in the ledger the addresses that may never be
// claimed.
func NewPools(defaults crd.Defaults, ledger *Ledger) *Pools {
	return &Pools{defaults: defaults, ledger: ledger, known: map[string]poolRecord{}}
}

// Set stores a pool, and freezes an unreadable one. It reports whether anything except the status
// has changed.
func (p *Pools) Set(obj *v1alpha1.PodIPPool) bool {
	version := poolVersion{obj.UID, obj.Generation, obj.DeletionTimestamp != nil}
	p.mu.Lock()
	defer p.mu.Unlock()
	if parsed, known := p.known[obj.Name]; known && parsed.version == version {
		return false
	}
	pool, err := crd.PoolFrom(obj, p.defaults)
	p.known[obj.Name] = poolRecord{version, pool, cmp.Or(err, pool.PolicyProblem)}
	p.resolve()
	return true
}

// Delete removes a pool.
func (p *Pools) Delete(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, name)
	p.resolve()
}

func (p *Pools) resolve() {
	var pools []*crd.Pool
	for _, record := range p.known {
		pools = append(pools, record.pool)
	}
	resolved := make(map[string]*crd.Pool, len(pools))
	for _, pool := range crd.ResolveOverlaps(pools) {
		if old := p.resolved[pool.Name]; pool != p.known[pool.Name].pool && reflect.DeepEqual(old, pool) {
			pool = old // with the same CIDRs closed as before
		}
		resolved[pool.Name] = pool
	}
	p.ledger.setPools(p.resolved, resolved)
	p.resolved = resolved
}

// Get returns a pool as its spec defines it, a frozen stand-in for it, or nil.
func (p *Pools) Get(name string) *crd.Pool { return p.all()[name] }

func (p *Pools) all() map[string]*crd.Pool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.resolved
}

// Names returns the names of all pools, valid or not.
func (p *Pools) Names() []string { return slices.Sorted(maps.Keys(p.all())) }

// Invalid returns the fault of the spec of a pool, or nil. Get shows whether the pool serves
// nevertheless.
func (p *Pools) Invalid(name string) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known[name].invalid
}

// Serving returns the PodIPPools that serve one Cilium pool, including those being deleted,
// each as Get returns it, in no particular order.
func (p *Pools) Serving(ciliumPool string) []*crd.Pool {
	var out []*crd.Pool
	for _, pool := range p.all() {
		if cmp.Or(pool.CiliumPool, crd.DefaultCiliumPool) == ciliumPool {
			out = append(out, pool)
		}
	}
	return out
}

// CiliumPools returns the names of the Cilium pools that PodIPPools serve, once per
// PodIPPool.
func (p *Pools) CiliumPools() []string {
	var out []string
	for _, pool := range p.all() {
		out = append(out, cmp.Or(pool.CiliumPool, crd.DefaultCiliumPool))
	}
	return out
}

// WithPodAddresses returns the pools that keep addresses for pods, best first.
func (p *Pools) WithPodAddresses() []*crd.Pool {
	var out []*crd.Pool
	for _, pool := range p.all() {
		if pool.PodAddresses != nil && !pool.Frozen() && !pool.Deleting {
			out = append(out, pool)
		}
	}
	slices.SortFunc(out, crd.ComparePools)
	return out
}

// Touching returns the pools with a CIDR that shares addresses with one of the
// prefixes, sorted.
func (p *Pools) Touching(prefixes []netip.Prefix) []string {
	var names []string
	for name, pool := range p.all() {
		if slices.ContainsFunc(prefixes, pool.Touches) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Match returns the pools for a node with these labels, best first.
func (p *Pools) Match(nodeLabels labels.Set) []*crd.Pool {
	return crd.Rank(slices.Collect(maps.Values(p.all())), nodeLabels)
}

// RulingIsFinal reports whether no label that a node may still get changes which pool rules it.
func (p *Pools) RulingIsFinal(nodeLabels labels.Set) bool {
	return crd.RulingIsFinal(slices.Collect(maps.Values(p.all())), nodeLabels)
}

// setPools replaces the pools, and the ranges that the changed ones reserve, and how they are cut. Each
// event of a pool comes here, so a pool that is the same costs nothing but a comparison.
func (l *Ledger) setPools(old, now map[string]*crd.Pool) {
	// Changed cannot be called: it reads the pools, which are locked. Whoever changes a pool wakes all nodes
	// and pools.
	l.mu.Lock()
	defer l.mu.Unlock()
	removed := changedPools(old, now)
	come := changedPools(now, old)
	for _, pool := range come {
		l.claims.turnover[pool.Name] += 0
		for _, f := range ipalloc.Families() {
			for _, prefix := range pool.Skipped(f) {
				l.Exclusions.reserve(prefix)
			}
		}
	}
	l.Pins.setPools(now, removed, come)
	l.Exclusions.setShares(now)
	for _, pool := range removed {
		if now[pool.Name] == nil {
			delete(l.claims.turnover, pool.Name)
		}
		for _, f := range ipalloc.Families() {
			for _, prefix := range pool.Skipped(f) {
				l.Exclusions.unreserve(prefix)
			}
		}
	}
}

// changedPools returns the pools that others lack, or have in another version.
func changedPools(pools, base map[string]*crd.Pool) (changed []*crd.Pool) {
	for name, pool := range pools {
		if base[name] != pool {
			changed = append(changed, pool)
		}
	}
	return changed
}

// ComesBack reports whether nodes can claim a block of a pool, which may be nil, once its node has
// returned it: neither its CIDR nor anything that withholds an address of it is in the way. The podCIDRs of
// CiliumNodes do not count, as the node that returns the block no longer lists it.
func (l *Ledger) ComesBack(pool *crd.Pool, block netip.Prefix) bool {
	if pool == nil || !pool.Assigns(block) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Exclusions.reserved.Reservations(block) == 0
}

// Pressure tracks how full pools are, and which nodes hold an idle block: the fuller a
// pool, the sooner its idle blocks are reclaimed. It is safe for concurrent use.
type Pressure struct {
	// Changed, if set, receives the nodes that hold an idle block of a pool when a change of its
	// pressure has changed the block's wait.
	Changed func(nodes []string)

	mu    sync.Mutex
	taken map[poolFamily]int
	// idle are the nodes to wake when the pressure of a pool changes.
	idle map[poolFamily]map[string]bool
}

type poolFamily struct {
	pool   string
	family ipalloc.Family
}

// NewPressure returns an empty Pressure.
func NewPressure() *Pressure {
	return &Pressure{taken: map[poolFamily]int{}, idle: map[poolFamily]map[string]bool{}}
}

// Set records the percentage of a pool's blocks of a family that are taken.
func (p *Pressure) Set(pool *crd.Pool, f ipalloc.Family, percent int) {
	p.mu.Lock()
	key := poolFamily{pool.Name, f}
	threshold := pool.Policy.PressurePercent
	old := p.taken[key]
	p.taken[key] = percent
	var nodes []string
	if percent != old && threshold != 0 && max(old, percent) >= threshold {
		nodes = slices.Collect(maps.Keys(p.idle[key]))
	}
	p.mu.Unlock()
	if p.Changed != nil && len(nodes) > 0 {
		p.Changed(nodes)
	}
}

// Taken returns the percentage of a pool's blocks of a family that are taken; 0: not known.
func (p *Pressure) Taken(pool string, f ipalloc.Family) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken[poolFamily{pool, f}]
}

// SetIdle records the pools with a pressure that shortens the wait of an idle block of a node, by
// family; none: the node holds no idle block.
func (p *Pressure) SetIdle(node string, pools [2][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, nodes := range p.idle {
		if delete(nodes, node); len(nodes) == 0 {
			delete(p.idle, key)
		}
	}
	for f, names := range pools {
		for _, name := range names {
			key := poolFamily{name, ipalloc.Family(f)}
			if p.idle[key] == nil {
				p.idle[key] = map[string]bool{}
			}
			p.idle[key][node] = true
		}
	}
}

// ForgetPool drops a deleted pool.
func (p *Pressure) ForgetPool(pool string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.taken, func(key poolFamily, _ int) bool { return key.pool == pool })
}

// PoolsInService returns the pools with a block of a family that is in service on the node.
func (s *Snapshot) PoolsInService(f ipalloc.Family) []string {
	var pools []string
	for _, b := range s.Blocks {
		if b.Phase == ipalloc.InService && ipalloc.FamilyOf(b.CIDR.Addr()) == f && !slices.Contains(pools, b.Pool) {
			pools = append(pools, b.Pool)
		}
	}
	return pools
}
