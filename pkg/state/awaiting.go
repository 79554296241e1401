package state

import (
	"maps"
	"slices"
	"sync"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// Awaiting tracks the nodes that are short of addresses, and the pools that could serve
// them. The zero value tracks none. It is safe for concurrent use.
type Awaiting struct {
	mu sync.Mutex
	// byNode are the pools that each node waits for.
	byNode map[string]map[string]bool
	// byPool are the nodes to wake when addresses of a pool are freed. The value is the
	// node's count in wakes when it began to listen: if wakes is higher now, the node has
	// been woken and has not looked yet.
	byPool map[string]map[string]int
	// wakes counts how often each node has been woken since it began to wait.
	wakes map[string]int
}

// Set replaces what a node waits for: blocks of these pools if it lacks addresses,
// otherwise nothing.
func (a *Awaiting) Set(node string, lacks bool, pools []*crd.Pool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remove(node)
	if lacks {
		a.add(node, pools)
	}
}

// Add adds pools to those that a node waits for. It reports whether this changed anything.
func (a *Awaiting) Add(node string, pools []*crd.Pool) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.add(node, pools)
}

func (a *Awaiting) add(node string, pools []*crd.Pool) (news bool) {
	if a.byNode == nil {
		a.byNode, a.byPool, a.wakes = map[string]map[string]bool{}, map[string]map[string]int{}, map[string]int{}
	}
	if a.byNode[node] == nil {
		a.byNode[node] = map[string]bool{}
	}
	for _, pool := range pools {
		news = news || !a.byNode[node][pool.Name]
		a.byNode[node][pool.Name] = true
		a.listen(node, pool.Name)
	}
	return news
}

// Has reports whether a node waits for any pool.
func (a *Awaiting) Has(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, waits := a.byNode[node]
	return waits
}

// Wake returns the nodes that one of the pools could serve, in no particular order. It does
// not return a node again until that node looks: when many blocks are freed at once, each
// node is queued once rather than for every block.
func (a *Awaiting) Wake(pools []string) []string {
	var names []string
	for _, pool := range pools {
		names = append(names, a.wake(pool)...)
	}
	return names
}

// wake visits each node that listens to a pool once, however many pools the node waits for.
// Of the nodes that begin to listen meanwhile, it wakes only those that listened before.
func (a *Awaiting) wake(pool string) []string {
	a.mu.Lock()
	nodes := a.byPool[pool]
	delete(a.byPool, pool)
	a.mu.Unlock()
	var names []string
	inParts(&a.mu, slices.Collect(maps.Keys(nodes)), func(name string) {
		if a.byNode[name][pool] && nodes[name] == a.wakes[name] {
			a.wakes[name]++
			names = append(names, name)
		}
	})
	return names
}

// Looks must be called before a node's state is read: addresses that are freed after this
// call wake the node again.
func (a *Awaiting) Looks(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for pool := range a.byNode[node] {
		a.listen(node, pool)
	}
}

// Forget drops a node that is gone.
func (a *Awaiting) Forget(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remove(node)
}

func (a *Awaiting) remove(node string) {
	for pool := range a.byNode[node] {
		delete(a.byPool[pool], node)
		if len(a.byPool[pool]) == 0 {
			delete(a.byPool, pool)
		}
	}
	delete(a.byNode, node)
	delete(a.wakes, node)
}

func (a *Awaiting) listen(node, pool string) {
	if a.byPool[pool] == nil {
		a.byPool[pool] = map[string]int{}
	}
	a.byPool[pool][node] = a.wakes[node]
}
