package state

import (
	"maps"
	"slices"
	"sync"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

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

// TakenPercent returns the percentage of a pool's blocks of a family that are taken; 0: not known.
func (p *Pressure) TakenPercent(pool string, f ipalloc.Family) int {
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
