package state

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Serving returns the PodIPPools that serve one Cilium pool, including those being deleted,
// each as Get returns it, in no particular order.
func (p *Pools) Serving(ciliumPool string) []*crd.Pool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var out []*crd.Pool
	for _, pool := range p.resolved {
		if cmp.Or(pool.CiliumPool, crd.DefaultCiliumPool) == ciliumPool {
			out = append(out, pool)
		}
	}
	return out
}

// CiliumPools returns the names of the Cilium pools that PodIPPools serve, once per
// PodIPPool.
func (p *Pools) CiliumPools() []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var out []string
	for _, pool := range p.resolved {
		out = append(out, cmp.Or(pool.CiliumPool, crd.DefaultCiliumPool))
	}
	return out
}

// Pools is this process's knowledge of PodIPPools, with overlaps between them resolved. All of it
// derives from the current objects and the flags, so a restart makes no difference. It is safe for
// concurrent use; the pools it returns are read-only.
type Pools struct {
	defaults crd.Defaults
	ledger   *Ledger

	mu       sync.RWMutex
	versions map[string]poolVersion
	parsed   map[string]*crd.Pool // frozen if a pool cannot serve
	invalid  map[string]error     // problems of a pool, whether or not it serves
	resolved map[string]*crd.Pool
	reserved map[string][]netip.Prefix
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
	return &Pools{
		defaults: defaults, ledger: ledger,
		versions: map[string]poolVersion{},
		parsed:   map[string]*crd.Pool{}, invalid: map[string]error{},
		resolved: map[string]*crd.Pool{}, reserved: map[string][]netip.Prefix{},
	}
}

// Set stores a pool, and freezes an unreadable one. It reports whether anything except the status
// has changed.
func (p *Pools) Set(obj *v1alpha1.PodIPPool) bool {
	version := poolVersion{obj.UID, obj.Generation, obj.DeletionTimestamp != nil}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.versions[obj.Name] == version {
		return false
	}
	p.versions[obj.Name] = version
	pool, err := crd.PoolFrom(obj, p.defaults)
	p.parsed[obj.Name] = pool
	if p.invalid[obj.Name] = cmp.Or(err, pool.PolicyProblem); p.invalid[obj.Name] == nil {
		delete(p.invalid, obj.Name)
	}
	p.resolve()
	return true
}

// Names returns the names of all pools, valid or not.
func (p *Pools) Names() []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Sorted(maps.Keys(p.parsed))
}

// Delete removes a pool.
func (p *Pools) Delete(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.parsed, name)
	delete(p.invalid, name)
	delete(p.versions, name)
	p.resolve()
}

func (p *Pools) resolve() {
	p.resolved = make(map[string]*crd.Pool, len(p.parsed))
	for _, pool := range crd.ResolveOverlaps(slices.Collect(maps.Values(p.parsed))) {
		p.resolved[pool.Name] = pool
	}
	reserved := make(map[string][]netip.Prefix, len(p.parsed))
	var cuts []ipalloc.Cut
	for name, pool := range p.resolved {
		for _, f := range ipalloc.Families() {
			reserved[name] = append(reserved[name], pool.Skipped(f)...)
			whole, _ := pool.Whole(f)
			cuts = append(cuts, whole)
		}
	}
	p.ledger.reserve(p.reserved, reserved, cuts)
	p.reserved = reserved
}

// Get returns a pool as its spec defines it, a frozen stand-in for it, or nil.
func (p *Pools) Get(name string) *crd.Pool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.resolved[name]
}

// Touching returns the pools with a CIDR that shares addresses with one of the
// prefixes, sorted.
func (p *Pools) Touching(prefixes []netip.Prefix) []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var names []string
	for name, pool := range p.resolved {
		if slices.ContainsFunc(prefixes, pool.Touches) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Invalid returns the fault of the spec of a pool, or nil. Get shows whether the pool serves
// nevertheless.
func (p *Pools) Invalid(name string) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.invalid[name]
}

// Match returns the pools for a node with these labels, best first.
func (p *Pools) Match(nodeLabels labels.Set) []*crd.Pool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return crd.Rank(slices.Collect(maps.Values(p.resolved)), nodeLabels)
}

// RulingIsFinal reports whether no label that a node may still get changes which pool rules it.
func (p *Pools) RulingIsFinal(nodeLabels labels.Set) bool {
	p.mu.RLock()
	pools := slices.Collect(maps.Values(p.resolved))
	p.mu.RUnlock()
	return crd.RulingIsFinal(pools, nodeLabels)
}

// reserve replaces the pools, the ranges that each reserves, and how they are cut.
func (l *Ledger) reserve(old, now map[string][]netip.Prefix, cuts []ipalloc.Cut) {
	l.mu.Lock()
	defer l.mu.Unlock() // whoever changes a pool wakes all nodes and pools
	l.cuts = cuts
	for name, ranges := range l.offered {
		l.excludeOffered(name, ranges)
	}
	for name, prefixes := range now {
		l.turnover[name] += 0
		for _, prefix := range prefixes {
			l.space.Reserve(prefix)
			l.withheld.Reserve(prefix)
		}
	}
	for name, prefixes := range old {
		if _, still := now[name]; !still {
			delete(l.turnover, name)
		}
		for _, prefix := range prefixes {
			l.space.Unreserve(prefix)
			l.withheld.Unreserve(prefix)
		}
	}
}
