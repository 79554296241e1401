package state

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// CiliumPools stores the existing CiliumPodIPPools. It is safe for concurrent use.
type CiliumPools struct {
	mu     sync.RWMutex
	byName map[string]*ciliumpool.View
	known  bool
}

// NewCiliumPools returns an empty CiliumPools that does not know whether the API server
// serves the kind.
func NewCiliumPools() *CiliumPools { return &CiliumPools{byName: map[string]*ciliumpool.View{}} }

// SetKnown records that the API server serves the kind.
func (c *CiliumPools) SetKnown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = true
}

// Known reports whether the API server serves the kind: agents in other modes work without
// it.
func (c *CiliumPools) Known() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.known
}

// Set stores a CiliumPodIPPool. It reports whether it selects different pods than
// before.
func (c *CiliumPools) Set(v *ciliumpool.View) (picks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.byName[v.Name]
	c.byName[v.Name] = v
	return pickOtherwise(was, v)
}

// Delete removes a CiliumPodIPPool, unless its name was reused since. It reports
// whether it selected pods.
func (c *CiliumPools) Delete(v *ciliumpool.View) (picked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.byName[v.Name]
	if was == nil || was.UID != v.UID {
		return false
	}
	delete(c.byName, v.Name)
	return was.Selector != nil
}

// pickOtherwise reports whether one selects different pods than the other. nil stands for a missing
// one.
func pickOtherwise(a, b *ciliumpool.View) bool {
	if a == nil {
		return b.Selector != nil
	}
	if a.Selector == nil && b.Selector == nil {
		return false
	}
	return !a.Selector.Same(b.Selector) || (a.MaskSize[0] == 0) != (b.MaskSize[0] == 0) || (a.MaskSize[1] == 0) != (b.MaskSize[1] == 0)
}

// Get returns the CiliumPodIPPool with a name, "" being the default one, or nil.
func (c *CiliumPools) Get(name string) *ciliumpool.View {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byName[cmp.Or(name, crd.DefaultCiliumPool)]
}

// Names returns the names of all CiliumPodIPPools.
func (c *CiliumPools) Names() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.byName))
}

// Picking returns the CiliumPodIPPools that select pods, in no particular order. A nil
// receiver has none.
func (c *CiliumPools) Picking() []*ciliumpool.View {
	if c == nil {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []*ciliumpool.View
	for _, v := range c.byName {
		if v.Selector != nil {
			out = append(out, v)
		}
	}
	return out
}

// Missing returns the known CiliumPodIPPools with a UID that is not among listed.
func (c *CiliumPools) Missing(listed map[types.UID]bool) []*ciliumpool.View {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []*ciliumpool.View
	for _, v := range c.byName {
		if !listed[v.UID] {
			out = append(out, v)
		}
	}
	return out
}
