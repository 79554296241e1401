package state

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// CiliumPools stores the existing CiliumPodIPPools. It is safe for concurrent use.
type CiliumPools struct {
	optional[*ciliumpool.View]
	// picking is what Picking returns; nil after a change.
	picking *Picking
}

// Picking are the CiliumPodIPPools that select pods. Those of single owners are looked up by the owner: there may be
// thousands.
type Picking struct {
	byOwner map[string][]*ciliumpool.View
	keys    map[string]bool // of the labels whose values are owners
	others  []*ciliumpool.View
}

// PickingOf returns the CiliumPodIPPools that select pods.
func PickingOf(views ...*ciliumpool.View) *Picking {
	p := &Picking{byOwner: map[string][]*ciliumpool.View{}, keys: map[string]bool{}}
	for _, v := range views {
		if owner := v.Selector.Owner(); owner != "" {
			_, key, _ := crd.SplitOwner(owner)
			p.byOwner[owner] = append(p.byOwner[owner], v)
			if key != "" {
				p.keys[key] = true
			}
		} else if v.Selector != nil {
			p.others = append(p.others, v)
		}
	}
	return p
}

// NewCiliumPools returns an empty CiliumPools that does not know whether the API server
// serves the kind.
func NewCiliumPools() *CiliumPools {
	return &CiliumPools{optional: optional[*ciliumpool.View]{byName: map[string]*ciliumpool.View{}, uid: func(v *ciliumpool.View) types.UID { return v.UID }}}
}

// Set stores a CiliumPodIPPool. It reports whether it selects different pods than
// before, or has other families.
func (c *CiliumPools) Set(v *ciliumpool.View) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.byName[v.Name]
	c.byName[v.Name] = v
	c.picking = nil
	if old == nil {
		return v.Selector != nil
	}
	return !old.Selector.Same(v.Selector) || (old.MaskSize[0] == 0) != (v.MaskSize[0] == 0) || (old.MaskSize[1] == 0) != (v.MaskSize[1] == 0)
}

// lacksFamily returns why no CIDR of a family may be listed for a Cilium pool, "" for the default one; "": it may.
// An agent that announces the pool by BGP to a peer of that family ends at such a CIDR
// (pkg/bgp/manager/reconciler/pod_ip_pool.go, getPodIPPoolPolicyStatements, v1.20.1).
func (c *CiliumPools) lacksFamily(ciliumPool string, f ipalloc.Family) string {
	if c == nil {
		return ""
	}
	view := c.Get(cmp.Or(ciliumPool, crd.DefaultCiliumPool))
	if view == nil || view.MaskSize[f] != 0 {
		return ""
	}
	return fmt.Sprintf("CiliumPodIPPool %s has no %s ranges, and agents that announce it by BGP would crash", view.Name, f)
}

// Delete removes a CiliumPodIPPool, unless its name was reused since. It reports
// whether it selected pods.
func (c *CiliumPools) Delete(v *ciliumpool.View) (picked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.byName[v.Name]
	if old == nil || old.UID != v.UID {
		return false
	}
	delete(c.byName, v.Name)
	c.picking = nil
	return old.Selector != nil
}

// OfOwner returns the name of the CiliumPodIPPool for the pinned addresses of an owner: the old one while that exists or
// a block is for it, as agents assign nothing to a pod that two of them select.
func (c *CiliumPools) OfOwner(owner string, ledger *Ledger) string {
	old := crd.OldCiliumPoolOfOwner(owner)
	isForOld := func(cidr netip.Prefix) bool {
		block, _ := ledger.Block(cidr)
		return block.CiliumPool == old
	}
	if old != "" && (c.Get(old) != nil || slices.ContainsFunc(ledger.Pins.Of(owner), isForOld)) {
		return old
	}
	return crd.CiliumPoolOfOwner(owner)
}

// Picking returns the CiliumPodIPPools that select pods. A nil receiver has none.
func (c *CiliumPools) Picking() *Picking {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.picking == nil {
		c.picking = PickingOf(slices.Collect(maps.Values(c.byName))...)
	}
	return c.picking
}
