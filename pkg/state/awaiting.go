package state

import (
	"container/list"
	"maps"
	"math"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Awaiting tracks the nodes that are short of addresses, and the pools that could serve them. When
// blocks of a pool are freed, it wakes as many nodes as there are free blocks: first nodes with
// waiting pods, then nodes that lack a reserve, and of each the node that looked longest ago. Once
// a woken node has been reconciled, it wakes the next one if blocks are left. The zero value tracks
// none. It is safe for concurrent use.
type Awaiting struct {
	// Free returns the number of blocks of a pool that can be claimed; nil: one for each node.
	Free func(pool string, f ipalloc.Family) uint64
	// Changed, if set, is called with the nodes that Looked wakes.
	Changed func(nodes []string)

	mu sync.Mutex
	// freed counts the calls of Wake.
	freed uint64
	nodes map[string]*waiter
	lines map[poolFamily]*line
}

// waiter is a node that waits, or that is being reconciled.
type waiter struct {
	name           string
	waits, starves bool
	// places are the node's places in the lines of the pools that it waits for; nil while it
	// is busy.
	places map[poolFamily]*list.Element
	// looked is the value of Awaiting.freed when the node last looked.
	looked uint64
	// busy: the node has been woken, or is being reconciled.
	busy bool
	// wokenFor is the pool that it was woken for; zero: for none.
	wokenFor poolFamily
}

// line are the nodes that wait for blocks of a pool.
type line struct {
	// waiters are the starving nodes, then the nodes that lack a reserve, each sorted by looked.
	waiters [2]list.List
	// woken counts the busy nodes that were woken for this pool.
	woken uint64
	// freed is the value of Awaiting.freed at the last call of Wake for this pool. A node
	// that looked since is not woken again.
	freed uint64
}

// Set replaces the waits of a node: for blocks of these pools if it lacks addresses, otherwise
// none. It starves if pods wait for these addresses.
func (a *Awaiting) Set(node string, lacks, starves bool, pools [2][]*crd.Pool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiter(node)
	a.leave(w)
	w.waits, w.starves, w.places = lacks, starves, map[poolFamily]*list.Element{}
	for f := 0; lacks && f < len(pools); f++ {
		for _, pool := range pools[f] {
			w.places[poolFamily{pool.Name, ipalloc.Family(f)}] = nil
		}
	}
	a.settle(w)
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
	var of []poolFamily
	a.mu.Lock()
	a.freed++
	for _, pool := range pools {
		of = append(of, poolFamily{pool, f})
		if l := a.lines[poolFamily{pool, f}]; l != nil {
			l.freed = a.freed
		}
	}
	a.mu.Unlock()
	return a.wake(of)
}

// Looks must be called before a node's state is read, and Looked once it is reconciled:
// blocks that are freed after Looks wake the node again.
func (a *Awaiting) Looks(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiter(node)
	a.leave(w)
	w.busy, w.looked = true, a.freed
}

// Looked ends a reconcile, with any result, and wakes the nodes that are next in line.
func (a *Awaiting) Looked(node string) {
	a.mu.Lock()
	w := a.waiter(node)
	woken := w.wokenFor
	pools := append(slices.Collect(maps.Keys(w.places)), woken)
	w.busy, w.wokenFor = false, poolFamily{}
	a.settle(w)
	if woken != (poolFamily{}) {
		a.lines[woken].woken--
		a.prune(woken)
	}
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
		for name := a.wakeNext(pool, free); name != ""; name = a.wakeNext(pool, free) {
			names = append(names, name)
		}
	}
	return names
}

func (a *Awaiting) mayWake(pool poolFamily) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next(pool) != nil
}

// wakeNext wakes the next node in line for a pool with so many free blocks, and returns its
// name; "": none.
func (a *Awaiting) wakeNext(pool poolFamily, free uint64) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.next(pool)
	if w == nil || a.lines[pool].woken >= free {
		return ""
	}
	a.lines[pool].woken++
	w.busy, w.wokenFor = true, pool
	a.leave(w)
	return w.name
}

// next returns the next node in line for a pool that has not looked since the pool's last
// block was freed.
func (a *Awaiting) next(pool poolFamily) *waiter {
	l := a.lines[pool]
	for i := 0; l != nil && i < len(l.waiters); i++ {
		if first := l.waiters[i].Front(); first != nil && first.Value.(*waiter).looked < l.freed {
			return first.Value.(*waiter)
		}
	}
	return nil
}

func (a *Awaiting) waiter(node string) *waiter {
	if a.nodes == nil {
		a.nodes, a.lines = map[string]*waiter{}, map[poolFamily]*line{}
	}
	if a.nodes[node] == nil {
		a.nodes[node] = &waiter{name: node}
	}
	return a.nodes[node]
}

// settle puts a waiting node in line for its pools, unless it is busy, and forgets any other.
func (a *Awaiting) settle(w *waiter) {
	switch {
	case w.busy:
	case !w.waits:
		delete(a.nodes, w.name)
	default:
		for pool := range w.places {
			w.places[pool] = a.join(w, pool)
		}
	}
}

// join puts a node in line behind nodes that looked earlier.
func (a *Awaiting) join(w *waiter, pool poolFamily) *list.Element {
	if a.lines[pool] == nil { // Wake may have been called while there was no line
		a.lines[pool] = &line{freed: a.freed}
	}
	in := a.lines[pool].of(w)
	before := in.Back()
	for before != nil && before.Value.(*waiter).looked > w.looked {
		before = before.Prev()
	}
	if before == nil {
		return in.PushFront(w)
	}
	return in.InsertAfter(w, before)
}

func (a *Awaiting) leave(w *waiter) {
	for pool, place := range w.places {
		if place != nil {
			a.lines[pool].of(w).Remove(place)
			w.places[pool] = nil
			a.prune(pool)
		}
	}
}

func (l *line) of(w *waiter) *list.List {
	if w.starves {
		return &l.waiters[0]
	}
	return &l.waiters[1]
}

func (a *Awaiting) prune(pool poolFamily) {
	if l := a.lines[pool]; l.woken == 0 && l.waiters[0].Len()+l.waiters[1].Len() == 0 {
		delete(a.lines, pool)
	}
}

// Starves reports whether a Node's condition says that its pods wait for a block, and that no
// pool has one. A restarted operator knows it at once.
func Starves(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeAddressShortage && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.NodePoolsExhausted
	})
}
