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

// CiliumPoolsOf are the pools of Cilium's that are decided on for one family of a
// node, which may be nil, as may its CiliumNode: the default one, "", first, then
// those that PodIPPools serve there, and those of blocks that it holds. Each has
// blocks of its own, and needs of its own.
func (c *Cluster) CiliumPoolsOf(node *corev1.Node, f ipalloc.Family, view *ciliumnode.View, blocks []crd.Block) []string {
	names := map[string]bool{"": true}
	if !c.Defaults.CiliumPools {
		return []string{""}
	}
	if node != nil {
		for _, pool := range c.Pools.Match(labels.Set(node.Labels)) {
			if _, serves := pool.Ranges(f); serves {
				names[pool.CiliumPool] = true
			}
		}
	}
	for _, b := range blocks {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == f {
			names[c.CiliumPoolOf(b, view)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// CiliumPoolOf is the pool of Cilium's that a block is for: the one that it is listed
// for, as its agent has it under that name, else the one that its PodIPPool serves.
// The two differ where a PodIPPool was made again for another one.
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

// IsOrphaned reports whether nothing tells which pool of Cilium's a block is for: its
// PodIPPool is gone, and it is listed for none. It must not come to be listed.
func (c *Cluster) IsOrphaned(b crd.Block, view *ciliumnode.View) bool {
	return c.Defaults.CiliumPools && c.Pools.Get(b.Pool) == nil && (view == nil || !slices.Contains(view.Listed(), b.CIDR))
}

// split parts the blocks that are for a pool of Cilium's from those for others.
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

// releaseOf leaves to each pool of Cilium's the release entries of its own blocks,
// and to the default one those of no block.
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

// PodsFor are the pods that count for one family and pool of Cilium's: those that
// ask for it, and those that have an address, as that tells where it is from. Of
// a family that the agent has no use for, no pod asks.
func (c *Cluster) PodsFor(pods []expand.Pod, asked PoolRequests, f ipalloc.Family, ciliumPool string, view *ciliumnode.View) []expand.Pod {
	if !c.Defaults.CiliumPools {
		return pods
	}
	uses := ciliumPool == "" || view == nil || view.BlockDemand == nil || view.BlockDemand.Uses(f)
	out := make([]expand.Pod, 0, len(pods))
	for _, p := range pods {
		if uses && asked.Of(p.Name, f) == ciliumPool || hasFamily(p.IPs, f) {
			out = append(out, p)
		}
	}
	return out
}

func hasFamily(ips []netip.Addr, f ipalloc.Family) bool {
	return slices.ContainsFunc(ips, func(a netip.Addr) bool { return ipalloc.FamilyOf(a) == f })
}
