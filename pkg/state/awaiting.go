package state

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Awaiting tracks the nodes that are short of addresses, and the pools that could serve them. When
// blocks of a pool are freed, it wakes as many nodes as there are free blocks: first nodes with
// waiting pods, then nodes that lack a reserve, and of each the node whose last reconcile is the
// oldest. Once a woken node has been reconciled, it wakes the next one if blocks are left. The zero
// value tracks none. It is safe for concurrent use.
type Awaiting struct {
	// Free returns the number of blocks of a pool that can be claimed; nil: one for each node.
	Free func(pool string, f ipalloc.Family) uint64
	// Changed, if set, is called with the nodes that End wakes.
	Changed func(nodes []string)

	mu    sync.Mutex
	nodes map[string]*waiter
	// wakes counts the calls of Wake, and freed is its value at the last call for each pool.
	wakes uint64
	freed map[poolFamily]uint64
	// woken counts the busy nodes that were woken for each pool.
	woken map[poolFamily]uint64
}

// waiter is a node that waits, or that is being reconciled.
type waiter struct {
	waits, starves bool
	// pools are the pools that it waits for.
	pools map[poolFamily]bool
	// began is the value of Awaiting.wakes when the node's last reconcile began. It is not woken for
	// blocks that were freed before.
	began uint64
	// busy: the node has been woken, or is being reconciled.
	busy bool
	// wokenFor is the pool that it was woken for; zero: for none.
	wokenFor poolFamily
}

// Set replaces the waits of a node: for blocks of these pools if it lacks addresses, otherwise
// none. It starves if pods wait for these addresses.
func (a *Awaiting) Set(node string, waits, starves bool, pools [2][]*crd.Pool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiter(node)
	w.waits = waits
	w.starves = starves
	w.pools = map[poolFamily]bool{}
	for f := 0; waits && f < len(pools); f++ {
		for _, pool := range pools[f] {
			w.pools[poolFamily{pool.Name, ipalloc.Family(f)}] = true
		}
	}
	a.settle(node, w)
}

// Forget records that a node does not wait.
func (a *Awaiting) Forget(node string) { a.Set(node, false, false, [2][]*crd.Pool{}) }

// Has reports whether a node lacks addresses.
func (a *Awaiting) Has(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, known := a.nodes[node]
	return known && w.waits
}

// Wake returns the nodes to reconcile because blocks of a family were freed in these pools. It
// does not return a node again until that node has been reconciled.
func (a *Awaiting) Wake(f ipalloc.Family, pools []string) []string {
	var keys []poolFamily
	a.mu.Lock()
	a.wakes++
	for _, pool := range pools {
		if key := (poolFamily{pool, f}); len(a.nodes) > 0 {
			keys = append(keys, key)
			a.freed[key] = a.wakes
		}
	}
	a.mu.Unlock()
	return a.wake(keys)
}

// Begin begins a reconcile, before the state of the node is read: blocks that are freed from then
// on wake the node again.
func (a *Awaiting) Begin(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiter(node)
	w.busy = true
	w.began = a.wakes
}

// End ends a reconcile, with any result, and wakes the nodes that are next in line: others for
// the pool that this one was woken for, and itself if blocks were freed meanwhile.
func (a *Awaiting) End(node string) {
	var pools []poolFamily
	a.mu.Lock()
	w := a.waiter(node)
	if woken := w.wokenFor; woken != (poolFamily{}) {
		pools = append(pools, woken)
		if a.woken[woken]--; a.woken[woken] == 0 {
			delete(a.woken, woken)
		}
	}
	w.busy = false
	w.wokenFor = poolFamily{}
	for pool := range w.pools {
		if a.inLine(w, pool) {
			pools = append(pools, pool)
		}
	}
	a.settle(node, w)
	a.mu.Unlock()
	if names := a.wake(pools); len(names) > 0 && a.Changed != nil {
		a.Changed(names)
	}
}

// wake wakes nodes for the free blocks of pools. Whoever frees a block, or ends a reconcile, calls
// it afterwards, so the last of several sees the effects of all.
func (a *Awaiting) wake(pools []poolFamily) (names []string) {
	for _, pool := range pools {
		if !a.mayWake(pool) { // spares the call of Free
			continue
		}
		free := uint64(math.MaxUint64)
		if a.Free != nil {
			free = a.Free(pool.pool, pool.family)
		}
		names = append(names, a.take(pool, free)...)
	}
	return names
}

func (a *Awaiting) mayWake(pool poolFamily) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.nodes {
		if a.inLine(w, pool) {
			return true
		}
	}
	return false
}

// inLine reports whether a free block of a pool may wake a node: it has begun no reconcile since the
// pool's last block was freed.
func (a *Awaiting) inLine(w *waiter, pool poolFamily) bool {
	return w.pools[pool] && !w.busy && w.began < a.freed[pool]
}

// take marks the nodes to wake for a pool with so many free blocks, the first in line first.
func (a *Awaiting) take(pool poolFamily, free uint64) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	type place struct {
		node string
		*waiter
	}
	var line []place
	room := free - min(free, a.woken[pool])
	for name, w := range a.nodes {
		if room > 0 && a.inLine(w, pool) {
			line = append(line, place{name, w})
		}
	}
	slices.SortFunc(line, func(v, w place) int {
		if v.starves != w.starves {
			if v.starves {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(v.began, w.began), strings.Compare(v.node, w.node))
	})
	for _, w := range line[:min(uint64(len(line)), room)] {
		w.busy = true
		w.wokenFor = pool
		a.woken[pool]++
		names = append(names, w.node)
	}
	return names
}

func (a *Awaiting) waiter(node string) *waiter {
	if a.nodes == nil {
		a.nodes = map[string]*waiter{}
		a.freed = map[poolFamily]uint64{}
		a.woken = map[poolFamily]uint64{}
	}
	if a.nodes[node] == nil {
		a.nodes[node] = &waiter{}
	}
	return a.nodes[node]
}

// settle forgets a node that neither waits nor is busy.
func (a *Awaiting) settle(node string, w *waiter) {
	if !w.busy && !w.waits {
		delete(a.nodes, node)
	}
	if len(a.nodes) == 0 {
		clear(a.freed)
	}
}
