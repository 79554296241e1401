package bed

import (
	"fmt"
	"math/bits"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

const (
	// poolLabel is the label by which each of several pools selects its Nodes.
	poolLabel = "node.example.com/pool"
	// maxBlocks is how many blocks a node of several pools may have: more than the
	// operator's default, which is the number it begins with.
	maxBlocks = 32
)

// PoolNames returns the names of all pools.
func (w World) PoolNames() []string {
	names := make([]string, max(1, w.Pools))
	for p := range names {
		names[p] = w.poolName(p)
	}
	return names
}

func (w World) poolName(p int) string {
	if w.Pools == 0 {
		return PoolName
	}
	return fmt.Sprintf("%s-%03d", PoolName, p)
}

// Fits returns an error if a pool has too few blocks for its nodes, with one more for each
// unless they are still.
func (w World) Fits() error {
	pools := max(1, w.Pools)
	perPool := (w.Nodes + pools - 1) / pools
	perNode := w.Blocks
	if !w.Still {
		perNode++
	}
	if want := perPool * perNode; want > w.room() {
		advice := "Choose fewer nodes, or fewer blocks or pods per node"
		if w.Pools > 0 {
			advice = "Choose fewer blocks or fewer pools"
		}
		return fmt.Errorf("%d nodes with %d blocks each in %d pools: a pool has %d blocks, and its %d nodes need %d. %s", w.Nodes, w.Blocks, pools, w.room(), perPool, want, advice)
	}
	return nil
}

// poolOf returns the name of node i's pool.
func (w World) poolOf(i int) string { return w.poolName(i % max(1, w.Pools)) }

// block returns block j of node i, from the part of PoolCIDR that belongs to the node's
// pool.
func (w World) block(i, j int) netip.Prefix {
	pools := max(1, w.Pools)
	return Block(i%pools*w.room() + BlockOf(i/pools, j, w.Blocks))
}

// poolBits returns the prefix length of the part of PoolCIDR that each pool has.
func (w World) poolBits() int {
	return netip.MustParsePrefix(PoolCIDR).Bits() + bits.Len(uint(max(1, w.Pools)-1))
}

// room returns how many blocks a pool has.
func (w World) room() int { return 1 << max(0, BlockBits-w.poolBits()) }

// pools returns the pools of the world. A single pool reclaims nothing. With several pools,
// a node needs exactly the blocks that it has: one more pod needs another block, which can
// be reclaimed once the pod is gone.
func (w World) pools() []*v1alpha1.PodIPPool {
	var out []*v1alpha1.PodIPPool
	for i, name := range w.PoolNames() {
		p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		cidr := netip.PrefixFrom(Block(i*w.room()).Addr(), w.poolBits())
		p.Spec.IPv4 = &v1alpha1.IPv4Ranges{CIDRs: []v1alpha1.PoolCIDR{{CIDR: cidr.String()}}, BlockSize: BlockBits}
		if w.Pools > 0 {
			p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{poolLabel: name}}
			free, most := int32(w.Blocks*usable-w.Used), int32(maxBlocks)
			p.Spec.Expand.MinFree, p.Spec.Expand.MaxBlocksPerNode = &free, &most
		} else {
			never := int32(0)
			p.Spec.Reclaim.ThresholdPercent = &never
		}
		out = append(out, p)
	}
	return out
}
