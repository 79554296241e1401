package state

import (
	"slices"
	"sync"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// Awaiting tracks the nodes that are short of addresses, and the pools that could
// give them some. The zero value tracks none. It is safe for concurrent use.
type Awaiting struct {
	mu     sync.Mutex
	byNode map[string]map[string]bool
}

// Set replaces what is recorded of a node: it waits for blocks of these pools, or,
// unless it lacks addresses, for none.
func (a *Awaiting) Set(node string, lacks bool, pools []*crd.Pool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byNode, node)
	if lacks {
		a.add(node, pools)
	}
}

// Add adds pools to those that a node waits for. It reports whether that is a change.
func (a *Awaiting) Add(node string, pools []*crd.Pool) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.add(node, pools)
}

func (a *Awaiting) add(node string, pools []*crd.Pool) (news bool) {
	if a.byNode == nil {
		a.byNode = map[string]map[string]bool{}
	}
	if a.byNode[node] == nil {
		a.byNode[node] = map[string]bool{}
	}
	for _, pool := range pools {
		news = news || !a.byNode[node][pool.Name]
		a.byNode[node][pool.Name] = true
	}
	return news
}

// Has reports whether a node waits, for whichever pool.
func (a *Awaiting) Has(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, waits := a.byNode[node]
	return waits
}

// For returns the nodes that one of the pools could serve, in no order.
func (a *Awaiting) For(pools []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for name, wanted := range a.byNode {
		if slices.ContainsFunc(pools, func(pool string) bool { return wanted[pool] }) {
			names = append(names, name)
		}
	}
	return names
}

// Forget drops a node that is gone.
func (a *Awaiting) Forget(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byNode, node)
}
