package world

import (
	"encoding/binary"
	"net/netip"
	"slices"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// onGrid reports whether a block has its pool's size. A block of another size is not recreated
// after it was torn away (docs/reliability.md), and its published addresses are then foreign.
func (w *World) onGrid(name string) bool {
	b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
	pool, ok := w.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool)
	cidr, err := netip.ParsePrefix(b.Spec.CIDR)
	if !ok || err != nil {
		return true
	}
	_, bits := ranges(pool, cidr.Addr().Is4())
	return cidr.Bits() >= bits
}

func (w *World) editBlock(verb Verb, name string) {
	obj := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock).DeepCopy()
	switch verb {
	case BlockDelete:
		w.mustNot(w.api.Delete(KindBlock, name, nil, nil))
	case BlockTear:
		w.tear(KindBlock, name)
	case BlockStrip:
		obj.Finalizers = nil
		w.must(w.api.Update(obj, false))
	case BlockStatus:
		obj.Status = v1alpha1.PodIPBlockStatus{}
		w.must(w.api.Update(obj, true))
	case Touch:
		touch(obj)
		w.must(w.api.Update(obj, false))
	default:
		panic("no such action: " + string(verb))
	}
}

// makeBlock pins the highest free block of a pool's first range to a node.
func (w *World) makeBlock(m *machine, of string) {
	pool, ok := w.api.Get(KindPool, of).(*v1alpha1.PodIPPool)
	if !ok || pool.Spec.IPv4 == nil {
		return
	}
	rng := netip.MustParsePrefix(pool.Spec.IPv4.CIDRs[0].CIDR)
	bits := int(pool.Spec.IPv4.BlockSize)
	for i := 1<<(bits-rng.Bits()) - 1; i >= 0; i-- {
		cidr := nth(rng, bits, i)
		if w.api.Get(KindBlock, crd.BlockName(cidr)) == nil && !w.named(cidr) {
			w.pin(cidr, pool.Name, m.name)
			return
		}
	}
}

// pin creates a block as users do.
func (w *World) pin(cidr netip.Prefix, pool, node string) {
	block := crd.NewBlock(cidr, pool, node, "")
	block.Finalizers = nil
	w.must(w.api.Create(block))
}

// wide stands for a block of twice its pool's size.
const wide = "wide"

// makeWideBlock pins the lowest free one to a node: an operator that does not know of it yet
// would claim there next.
func (w *World) makeWideBlock(m *machine) {
	pool, ok := w.api.Get(KindPool, w.cfg.Pools[0].Name).(*v1alpha1.PodIPPool)
	if !ok || pool.Spec.IPv4 == nil {
		return
	}
	rng := netip.MustParsePrefix(pool.Spec.IPv4.CIDRs[0].CIDR)
	bits := int(pool.Spec.IPv4.BlockSize) - 1
	for i := range 1 << max(0, bits-rng.Bits()) {
		if cidr := nth(rng, bits, i); w.isFree(cidr, &v1alpha1.PodIPPoolSpec{}) {
			w.pin(cidr, pool.Name, m.name)
			return
		}
	}
}

// countWide counts one that is assigned to an agent as a whole.
func (w *World) countWide(b *v1alpha1.PodIPBlock) {
	if !w.onGrid(b.Name) {
		w.Counts.Did["publish a wide block"]++
	}
}

// named reports whether a CiliumNode names an address of cidr, including the agent's own.
func (w *World) named(cidr netip.Prefix) bool {
	for _, m := range w.machines {
		if slices.ContainsFunc(podCIDRsOf(w.api.Get(KindNode, m.name)), cidr.Overlaps) {
			return true
		}
		cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
		if !ok {
			continue
		}
		for _, addresses := range []ipamtypes.AllocationMap{w.poolOf(cn), cn.Status.IPAM.Used} {
			for key := range addresses {
				if addr, err := netip.ParseAddr(key); err == nil && cidr.Contains(addr) {
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

// nth returns the i-th prefix of a length in rng, which spans at most 2^32 addresses.
func nth(rng netip.Prefix, bits, i int) netip.Prefix {
	a := rng.Addr().AsSlice()
	low := a[len(a)-4:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+uint32(i)<<(rng.Addr().BitLen()-bits))
	addr, _ := netip.AddrFromSlice(a)
	return netip.PrefixFrom(addr, bits)
}
