package world

import (
	"net/netip"
	"slices"
	"strings"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// space counts the blocks that nodes could get.
type space struct{ *World }

// withheld reports whether an address of a block belongs to the cluster, and so must not go to
// a pod. Agents that have whole blocks use every address.
func (s *space) withheld(addr netip.Addr) bool {
	if s.whole() || s.fixed() {
		return false
	}
	return s.rules.isStray(addr) || slices.ContainsFunc(s.clusterHas(), func(p netip.Prefix) bool { return p.Contains(addr) })
}

// mustMove reports whether a block's pool no longer selects its node and drains such blocks,
// and another pool serves the node.
func (s *space) mustMove(b *v1alpha1.PodIPBlock, pool *crd.Pool) bool {
	node, ok := s.api.Get(KindNode, b.Spec.NodeName).(*corev1.Node)
	if !ok || !pool.DrainUnselected || s.multiPool() || s.fixed() || s.selects(s.api.Get(KindPool, pool.Name).(*v1alpha1.PodIPPool), node.Name) {
		return false
	}
	_, ruling := s.policy(node.Name, cidrOf(b).Addr().Is4())
	return ruling != "" && len(node.Spec.Taints) == 0
}

// othersMove reports whether as many other nodes as allowed are moving off the pool of a block.
// Those that find no replacement keep their places.
func (s *space) othersMove(b *v1alpha1.PodIPBlock) bool {
	obj, ok := s.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool)
	if !ok {
		return false
	}
	if pool, _ := crd.PoolFrom(obj, s.defaults()); !s.mustMove(b, pool) {
		return false
	}
	others := map[string]bool{}
	for _, o := range s.Blocks() {
		if o.Spec.NodeName == b.Spec.NodeName || o.Spec.PoolName != b.Spec.PoolName {
			continue
		}
		if movesOff(o) || phaseOf(o) == "" && s.asked(o) && s.room(o.Spec.NodeName) == 0 {
			others[o.Spec.NodeName] = true
		}
	}
	return len(others) >= maxMoves(obj)
}

// defaults are the operators', as they apply to the mode.
func (s *space) defaults() crd.Defaults {
	d := s.cfg.Settings.Defaults
	d.WholeBlocks = s.cfg.Settings.Mode.WholeBlocks()
	d.CiliumPools = s.cfg.Settings.Mode.ManyPools()
	return d
}

// awaitsTurn reports whether a block of a node, of the family of cidr, has to leave once other
// nodes have moved. Until then no address of the agent itself moves to it, nor is it replaced.
func (s *space) awaitsTurn(cidr netip.Prefix, node string) bool {
	return slices.ContainsFunc(s.Blocks(), func(b *v1alpha1.PodIPBlock) bool {
		return b.Spec.NodeName == node && sameFamily(cidrOf(b), cidr) && phaseOf(b) == "" && s.othersMove(b)
	})
}

func readable(pool *v1alpha1.PodIPPool) bool {
	_, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
	return err == nil
}

func (s *space) blocksOf(node string, f ipalloc.Family) int {
	n := 0
	for _, b := range s.Blocks() {
		if b.Spec.NodeName == node && ipalloc.FamilyOf(cidrOf(b).Addr()) == f {
			n++
		}
	}
	return n
}

// reusable reports whether a block could be claimed again if it were free.
func (s *space) reusable(pool *v1alpha1.PodIPPool, cidr netip.Prefix) bool {
	cidrs, bits := ranges(pool, cidr.Addr().Is4())
	return bits == cidr.Bits() && slices.ContainsFunc(cidrs, func(c v1alpha1.PoolCIDR) bool {
		return allocates(c) && netip.MustParsePrefix(c.CIDR).Contains(cidr.Addr())
	})
}

func allocates(c v1alpha1.PoolCIDR) bool { return crd.Range{Policy: c.AllocationPolicy}.Allocates() }

// isAsked reports whether users want a block to leave.
func (s *space) isAsked(b *v1alpha1.PodIPBlock) bool {
	return b.DeletionTimestamp != nil || s.asked(b)
}

// asked reports whether a block has to leave, whatever its use.
func (s *space) asked(b *v1alpha1.PodIPBlock) bool {
	obj, ok := s.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool)
	if !ok {
		return true
	}
	pool, err := crd.PoolFrom(obj, s.defaults())
	return err != nil || pool.Deleting || pool.Drains(cidrOf(b)) || s.mustMove(b, pool)
}

// without returns the number of pods of the node without an address of a family, according to the
// agent's report.
func (s *space) without(m *machine, cn *ciliumv2.CiliumNode, f ipalloc.Family) int {
	owners := map[string]bool{}
	for addr, ip := range addresses(cn.Status.IPAM.Used) {
		if ipalloc.FamilyOf(addr) == f {
			owners[strings.TrimSuffix(ip.Owner, " [restored]")] = true
		}
	}
	n := 0
	for _, slot := range s.workload.slots {
		if pod := m.kubelet.podObject(slot); pod != nil && !finished(pod) && !owners[keyOf(pod)] {
			n++
		}
	}
	return n
}

// room returns the number of free blocks for a node, in the family that has fewest: without one of
// each an agent does not start, and no block is replaced.
func (s *space) room(node string) int {
	n := s.freeBlocks(node, true, crd.DefaultCiliumPool)
	if len(s.cfg.Families) > 1 && !s.poolUsers.ipv6Over {
		n = min(n, s.freeBlocks(node, false, crd.DefaultCiliumPool))
	}
	return n
}

// freeBlocks counts the blocks that are neither held nor named by a CiliumNode, in a family's
// open ranges of the pools that select a node, for a Cilium pool.
func (s *space) freeBlocks(node string, v4 bool, ciliumPool string) int {
	n := 0
	for _, pool := range s.pools() {
		if pool.DeletionTimestamp != nil || isPaused(pool) || crd.CiliumPoolObjectName(pool) != ciliumPool || !s.selects(pool, node) {
			continue
		}
		n += s.freeOf(pool, v4)
	}
	return n
}

// enoughFree is where counting free blocks stops.
const enoughFree = 16

// freeOf returns their number in one pool, at most enoughFree.
func (s *space) freeOf(pool *v1alpha1.PodIPPool, v4 bool) int {
	n := 0
	cidrs, bits := ranges(pool, v4)
	for _, c := range cidrs {
		rng := netip.MustParsePrefix(c.CIDR)
		for i := 0; allocates(c) && i < 1<<(bits-rng.Bits()) && n < enoughFree; i++ {
			if s.isFree(nth(rng, bits, i), &pool.Spec) {
				n++
			}
		}
	}
	return n
}

func isPaused(pool *v1alpha1.PodIPPool) bool { return ptr.Deref(pool.Spec.Paused, false) }

// ranges returns a pool's ranges of a family, and the length of their blocks.
func ranges(pool *v1alpha1.PodIPPool, v4 bool) ([]v1alpha1.PoolCIDR, int) {
	switch {
	case v4 && pool.Spec.IPv4 != nil:
		return pool.Spec.IPv4.CIDRs, int(pool.Spec.IPv4.BlockSize)
	case !v4 && pool.Spec.IPv6 != nil:
		return pool.Spec.IPv6.CIDRs, int(pool.Spec.IPv6.BlockSize)
	}
	return nil, 0
}

func (s *space) isFree(cidr netip.Prefix, pool *v1alpha1.PodIPPoolSpec) bool {
	if s.overlapped("", cidr) || s.api.Get(KindPin, crd.BlockName(cidr)) != nil {
		return false
	}
	// Agents that have whole blocks use every address.
	allOrNone := s.whole() || s.fixed() || pool.ReservedBlockPolicy != v1alpha1.PublishRemainder
	for _, r := range pool.Reserved {
		reserved := netip.MustParsePrefix(r.CIDR)
		if reserved.Overlaps(cidr) && (allOrNone || reserved.Bits() <= cidr.Bits()) {
			return false
		}
	}
	return !s.named(cidr) && !s.clusters(cidr)
}

// named reports whether a CiliumNode names an address of cidr, including the agent's own.
func (s *space) named(cidr netip.Prefix) bool {
	for _, m := range s.machines {
		if slices.ContainsFunc(podCIDRsOf(s.api.Get(KindNode, m.name)), cidr.Overlaps) {
			return true
		}
		cn := s.CiliumNode(m.name)
		if cn == nil {
			continue
		}
		for _, some := range []ipamtypes.AllocationMap{cn.Spec.IPAM.Pool, cn.Status.IPAM.Used} {
			for addr := range addresses(some) {
				if cidr.Contains(addr) {
					return true
				}
			}
		}
		listed := given(cn, adopt.MultiPool)
		for _, p := range cn.Spec.IPAM.PodCIDRs {
			listed = append(listed, p.Prefix)
		}
		if slices.ContainsFunc(listed, cidr.Overlaps) || slices.ContainsFunc(ownIn(cn), cidr.Contains) {
			return true
		}
	}
	return false
}

// policy returns the policy that applies to a node for a family, and the pool it comes from;
// "": none.
func (s *space) policy(node string, v4 bool) (expand.Policy, string) {
	family := ipalloc.IPv6
	if v4 {
		family = ipalloc.IPv4
	}
	for _, o := range s.operators {
		if !o.leads {
			continue
		}
		if pools := crd.ForFamily(o.parts.Node.Cluster.Pools.Match(s.labelsOf(node)), family, ""); len(pools) > 0 {
			return pools[0].Policy, pools[0].Name
		}
		return o.settings.Defaults.Policy, ""
	}
	return s.cfg.Settings.Defaults.Policy, ""
}
