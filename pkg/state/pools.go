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
		if slices.ContainsFunc(prefixes, pool.Overlaps) {
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
