package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

const (
	zoneLabel = "topology.kubernetes.io/zone"
	// mostCIDRs is the maximum number of CIDRs of a pool.
	mostCIDRs = 4
)

var zones = []string{"east", "west"}

// network simulates the administrator who writes the pools, one for each zone. Their CIDRs are
// tight, so that blocks soon move to other nodes.
type network struct {
	client client.Client
	mode   mode
	// blockBits is the prefix length of a block, bits that of a CIDR.
	blockBits, bits int
	cidrs           map[string]int
}

// newNetwork sizes CIDRs so that the first two hold two to four blocks for each node of their
// zone; in kubernetes mode, one to two.
func newNetwork(c client.Client, s settings) *network {
	n := &network{client: c, mode: s.mode, blockBits: s.mode.blockBits(), cidrs: map[string]int{}}
	blocks := s.mode.atLeast(s.nodes)
	for n.bits = n.blockBits; 1<<(n.blockBits-n.bits) < blocks; {
		n.bits--
	}
	return n
}

// cidr returns a zone's next CIDR.
func (n *network) cidr(zone string, bits int) v1alpha1.PoolCIDR {
	second := byte(64 + 32*slices.Index(zones, zone) + n.cidrs[zone])
	n.cidrs[zone]++
	return v1alpha1.PoolCIDR{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{100, second, 0, 0}), bits).String()}
}

func (n *network) create(ctx context.Context) error {
	for _, zone := range zones {
		pool := &v1alpha1.PodIPPool{
			ObjectMeta: metav1.ObjectMeta{Name: zone},
			Spec: v1alpha1.PodIPPoolSpec{
				NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{zoneLabel: zone}},
				IPv4: &v1alpha1.IPv4Ranges{
					CIDRs: []v1alpha1.PoolCIDR{n.cidr(zone, n.bits), n.cidr(zone, n.bits)}, BlockSize: int32(n.blockBits),
				},
			},
		}
		if err := n.client.Create(ctx, pool); err != nil {
			return fmt.Errorf("create pool %s: %w", zone, err)
		}
	}
	return nil
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
func (n *network) edit(ctx context.Context, zone string, change func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR) error {
	return persist(ctx, func(ctx context.Context) error {
		pool := &v1alpha1.PodIPPool{}
		if err := n.client.Get(ctx, client.ObjectKey{Name: zone}, pool); err != nil {
			return err
		}
		pool.Spec.IPv4.CIDRs = change(pool.Spec.IPv4.CIDRs)
		return n.client.Update(ctx, pool)
	})
}

// grow adds a CIDR to a pool, or to the other one if it has enough.
func (n *network) grow(ctx context.Context, random *rand.Rand) error {
	zone := zones[random.IntN(len(zones))]
	if n.cidrs[zone] >= mostCIDRs {
		return nil
	}
	added := n.cidr(zone, n.bits)
	return n.edit(ctx, zone, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR { return with(cidrs, added) })
}

// plenty adds more addresses to each pool than its nodes need, as an administrator does in a
// shortage.
func (n *network) plenty(ctx context.Context) error {
	for _, zone := range zones {
		added := n.cidr(zone, n.bits-n.mode.plentyBits())
		err := n.edit(ctx, zone, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR { return with(cidrs, added) })
		if err != nil {
			return err
		}
	}
	return nil
}

// with adds a CIDR, unless an earlier edit with a lost response has added it.
func with(cidrs []v1alpha1.PoolCIDR, added v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
	if slices.ContainsFunc(cidrs, func(c v1alpha1.PoolCIDR) bool { return c.CIDR == added.CIDR }) {
		return cidrs
	}
	return append(cidrs, added)
}

// drain drains one CIDR of a pool, and ends the drains of its others.
func (n *network) drain(ctx context.Context, random *rand.Rand) error {
	zone := zones[random.IntN(len(zones))]
	chosen := random.IntN(n.cidrs[zone])
	return n.edit(ctx, zone, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
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
	for _, zone := range zones {
		err := n.edit(ctx, zone, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
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
