package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

const (
	zoneLabel = "topology.kubernetes.io/zone"
	// mostCIDRs is the maximum number of CIDRs of a pool.
	mostCIDRs = 4
)

var zones = []string{"east", "west"}

// network simulates the administrator who writes the pools, one for each zone and Cilium pool.
// Their CIDRs are tight, so that blocks soon move to other nodes.
type network struct {
	client client.Client
	mode   mode
	pools  []string
	// blockBits is the prefix length of a block, bits that of a CIDR.
	blockBits, bits int
	cidrs           map[string]int
}

// newNetwork sizes CIDRs so that the first two hold two to four blocks for each node of their
// zone; in kubernetes mode, one to two.
func newNetwork(c client.Client, s settings) *network {
	n := &network{client: c, mode: s.mode, blockBits: s.mode.blockBits(), cidrs: map[string]int{}}
	for _, ciliumPool := range s.mode.ciliumPools() {
		for _, zone := range zones {
			n.pools = append(n.pools, zone+"-"+ciliumPool)
		}
	}
	blocks := s.mode.atLeast(s.nodes)
	for n.bits = n.blockBits; 1<<(n.blockBits-n.bits) < blocks; {
		n.bits--
	}
	return n
}

// cidr returns a pool's next CIDR.
func (n *network) cidr(pool string, bits int) v1alpha1.PoolCIDR {
	second := byte(64 + 8*slices.Index(n.pools, pool) + n.cidrs[pool])
	n.cidrs[pool]++
	return v1alpha1.PoolCIDR{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{100, second, 0, 0}), bits).String()}
}

func (n *network) create(ctx context.Context) error {
	for _, name := range n.pools {
		zone, ciliumPool, _ := strings.Cut(name, "-")
		pool := &v1alpha1.PodIPPool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.PodIPPoolSpec{
				NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{zoneLabel: zone}},
				IPv4: &v1alpha1.IPv4Ranges{
					CIDRs: []v1alpha1.PoolCIDR{n.cidr(name, n.bits), n.cidr(name, n.bits)}, BlockSize: int32(n.blockBits),
				},
			},
		}
		if ciliumPool != crd.DefaultCiliumPool {
			pool.Spec.CiliumPoolName = ciliumPool
		}
		n.mirror(&pool.Spec)
		if err := n.client.Create(ctx, pool); err != nil {
			return fmt.Errorf("create pool %s: %w", name, err)
		}
	}
	return nil
}

// mirror gives a pool the same ranges in IPv6, below fd00::/96, if agents run IPv6.
func (n *network) mirror(spec *v1alpha1.PodIPPoolSpec) {
	const above = 96
	if !slices.Contains(n.mode.families(), agent.IPv6) {
		return
	}
	spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: spec.IPv4.BlockSize + above}
	for _, c := range spec.IPv4.CIDRs {
		v4 := netip.MustParsePrefix(c.CIDR)
		v6 := [16]byte{0: 0xfd}
		copy(v6[12:], v4.Addr().AsSlice())
		c.CIDR = netip.PrefixFrom(netip.AddrFrom16(v6), above+v4.Bits()).String()
		spec.IPv6.CIDRs = append(spec.IPv6.CIDRs, c)
	}
}

// unusedPool returns a pool that selects no node.
func unusedPool() *v1alpha1.PodIPPool {
	return &v1alpha1.PodIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "unused"},
		Spec: v1alpha1.PodIPPoolSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{zoneLabel: "none"}},
			IPv4:         &v1alpha1.IPv4Ranges{CIDRs: []v1alpha1.PoolCIDR{{CIDR: "100.126.0.0/24"}}, BlockSize: 28},
		},
	}
}

// edit changes a pool.
func (n *network) edit(ctx context.Context, name string, change func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR) error {
	return persist(ctx, func(ctx context.Context) error {
		pool := &v1alpha1.PodIPPool{}
		if err := n.client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
			return err
		}
		before := client.MergeFromWithOptions(pool.DeepCopy(), client.MergeFromWithOptimisticLock{})
		pool.Spec.IPv4.CIDRs = change(pool.Spec.IPv4.CIDRs)
		n.mirror(&pool.Spec)
		return n.client.Patch(ctx, pool, before)
	})
}

// grow adds a CIDR to a pool, unless it has enough.
func (n *network) grow(ctx context.Context, random *rand.Rand) error {
	pool := n.pools[random.IntN(len(n.pools))]
	if n.cidrs[pool] >= mostCIDRs {
		return nil
	}
	added := n.cidr(pool, n.bits)
	return n.edit(ctx, pool, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR { return addCIDR(cidrs, added) })
}

// plenty adds more addresses to each pool than its nodes need, as an administrator does in a
// shortage.
func (n *network) plenty(ctx context.Context) error {
	for _, pool := range n.pools {
		added := n.cidr(pool, n.bits-n.mode.plentyBits())
		err := n.edit(ctx, pool, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR { return addCIDR(cidrs, added) })
		if err != nil {
			return err
		}
	}
	return nil
}

// addCIDR adds a CIDR, unless an earlier edit with a lost response has added it.
func addCIDR(cidrs []v1alpha1.PoolCIDR, added v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
	if slices.ContainsFunc(cidrs, func(c v1alpha1.PoolCIDR) bool { return c.CIDR == added.CIDR }) {
		return cidrs
	}
	return append(cidrs, added)
}

// drain drains one CIDR of a pool, and ends the drains of its others.
func (n *network) drain(ctx context.Context, random *rand.Rand) error {
	pool := n.pools[random.IntN(len(n.pools))]
	chosen := random.IntN(n.cidrs[pool])
	return n.edit(ctx, pool, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
		for i := range cidrs {
			cidrs[i].AllocationPolicy = v1alpha1.AllocationAllocate
			if i == chosen {
				cidrs[i].AllocationPolicy = v1alpha1.AllocationDrain
			}
		}
		return cidrs
	})
}

// undrain ends all drains.
func (n *network) undrain(ctx context.Context, _ *rand.Rand) error {
	for _, pool := range n.pools {
		err := n.edit(ctx, pool, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
			for i := range cidrs {
				cidrs[i].AllocationPolicy = v1alpha1.AllocationAllocate
			}
			return cidrs
		})
		if err != nil {
			return err
		}
	}
	return nil
}
