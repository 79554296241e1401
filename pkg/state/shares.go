package state

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// poolsFor returns the pools for a node, which may be nil, by Cilium pool, best first.
func (c *Cluster) poolsFor(node *corev1.Node) map[string][]*crd.Pool {
	out := map[string][]*crd.Pool{}
	if node != nil {
		for _, pool := range c.Pools.Match(labels.Set(node.Labels)) {
			out[pool.CiliumPool] = append(out[pool.CiliumPool], pool)
		}
	}
	return out
}

// ciliumPoolsOf returns the Cilium pools to decide on for one family of a node: the default one,
// "", first, then the pools that its CiliumNode lists or requests, that its pods request, and the
// pools of blocks that it holds. Each has its own blocks and its own demand. As long as the node
// has no CiliumNode, the pools that PodIPPools serve there count too.
func (c *Cluster) ciliumPoolsOf(s *Snapshot, f ipalloc.Family, served map[string][]*crd.Pool) []string {
	if !c.Defaults.CiliumPools {
		return []string{""}
	}
	names := SetOf(append(s.CiliumNode.CiliumPools(), ""))
	if s.CiliumNode == nil {
		for name := range served {
			names[name] = true
		}
	}
	for _, asked := range s.PoolRequests {
		names[asked[f]] = true
	}
	for _, b := range s.Blocks {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == f {
			names[c.CiliumPoolOf(b, s.CiliumNode)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// CiliumPoolOf returns the Cilium pool that a block is for: the pool that it is listed for, because
// its agent knows it under that name, otherwise the pool that its PodIPPool serves. The two differ
// if a PodIPPool was recreated for another Cilium pool.
func (c *Cluster) CiliumPoolOf(b crd.Block, view *ciliumnode.View) string {
	if !c.Defaults.CiliumPools {
		return ""
	}
	listed := view.ListedFor(b.CIDR)
	if pool := c.Pools.Get(b.Pool); pool != nil && listed == "" && (view == nil || !view.Lists(b.CIDR)) {
		return pool.CiliumPool
	}
	return listed
}

// IsOrphaned reports whether the Cilium pool of a block is unknown: its PodIPPool is gone,
// and it is listed for none. Such a block must not become listed.
func (c *Cluster) IsOrphaned(b crd.Block, view *ciliumnode.View) bool {
	return c.Defaults.CiliumPools && c.Pools.Get(b.Pool) == nil && (view == nil || !slices.Contains(view.Listed(), b.CIDR))
}

// anyFree reports whether one of pools has a free block of a family.
func (c *Cluster) anyFree(f ipalloc.Family, pools []*crd.Pool) bool {
	return slices.ContainsFunc(pools, func(p *crd.Pool) bool {
		cut, ok := p.Cut(f)
		return ok && !p.Paused && c.Ledger.Free(cut) > 0
	})
}

// FreeIn returns the number of blocks of a family that can be claimed from a pool.
func (c *Cluster) FreeIn(pool string, f ipalloc.Family) uint64 {
	if p := c.Pools.Get(pool); p != nil && !p.Paused {
		if cut, ok := p.Cut(f); ok {
			return c.Ledger.Free(cut)
		}
	}
	return 0
}

// split separates the blocks that are for a Cilium pool from those for others.
func (c *Cluster) split(blocks []crd.Block, ciliumPool string, view *ciliumnode.View) (mine, others []crd.Block) {
	if !c.Defaults.CiliumPools {
		return blocks, nil
	}
	for _, b := range blocks {
		if c.CiliumPoolOf(b, view) == ciliumPool {
			mine = append(mine, b)
		} else {
			others = append(others, b)
		}
	}
	return mine, others
}

// releaseOf returns the release entries that concern a Cilium pool: entries of its own blocks, and
// for the default pool also entries of no block.
func releaseOf(all map[netip.Addr]expand.ReleaseStatus, ciliumPool string, mine, others []crd.Block) map[netip.Addr]expand.ReleaseStatus {
	if len(others) == 0 && ciliumPool == "" || len(all) == 0 {
		return all
	}
	in := func(blocks []crd.Block, a netip.Addr) bool {
		return slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.CIDR.Contains(a) })
	}
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(a netip.Addr, _ expand.ReleaseStatus) bool {
		return !in(mine, a) && (ciliumPool != "" || in(others, a))
	})
	return out
}

func hasFamily(ips []netip.Addr, f ipalloc.Family) bool {
	return slices.ContainsFunc(ips, func(a netip.Addr) bool { return ipalloc.FamilyOf(a) == f })
}
