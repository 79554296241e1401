package drain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

// target is the subject of a drain: one block, or ranges of a pool.
type target struct {
	what   string
	block  *crd.Block // nil: ranges
	pool   string
	ranges []netip.Prefix
}

// parseTarget parses the argument: a block, a pool's CIDR, or a pool.
func parseTarget(c *cluster.Cluster, name string) (target, error) {
	cidr, err := netip.ParsePrefix(name)
	if block, blockErr := crd.ParseBlockName(name); err != nil && blockErr == nil {
		cidr, err = block, nil
	}
	if err == nil {
		if pool, ok := poolOfRange(c, cidr); ok {
			return target{what: fmt.Sprintf("CIDR %s of pool %s", cidr, pool), pool: pool, ranges: []netip.Prefix{cidr}}, nil
		}
		if b, ok := c.Ledger.Block(cidr); ok {
			return target{what: "block " + b.Name, block: &b, pool: b.Pool, ranges: []netip.Prefix{cidr}}, nil
		}
	}
	if pool := c.PodIPPools[name]; pool != nil {
		return target{what: "pool " + name, pool: name, ranges: rangesOf(pool)}, nil
	}
	return target{}, fmt.Errorf("%s is neither a block, nor a CIDR in the spec of a pool, nor a pool", name)
}

func poolOfRange(c *cluster.Cluster, cidr netip.Prefix) (string, bool) {
	for _, name := range c.Pools.Names() {
		if slices.Contains(rangesOf(c.PodIPPools[name]), cidr) {
			return name, true
		}
	}
	return "", false
}

// cidrsOf returns the entries of a pool's spec, to be modified in place.
func cidrsOf(pool *v1alpha1.PodIPPool) []*v1alpha1.PoolCIDR {
	var all []*v1alpha1.PoolCIDR
	if pool.Spec.IPv4 != nil {
		for i := range pool.Spec.IPv4.CIDRs {
			all = append(all, &pool.Spec.IPv4.CIDRs[i])
		}
	}
	if pool.Spec.IPv6 != nil {
		for i := range pool.Spec.IPv6.CIDRs {
			all = append(all, &pool.Spec.IPv6.CIDRs[i])
		}
	}
	return all
}

// entriesIn returns the entries of a pool's spec with these ranges.
func entriesIn(pool *v1alpha1.PodIPPool, ranges []netip.Prefix) []*v1alpha1.PoolCIDR {
	return slices.DeleteFunc(cidrsOf(pool), func(entry *v1alpha1.PoolCIDR) bool {
		p, err := netip.ParsePrefix(entry.CIDR)
		return err != nil || !slices.Contains(ranges, p)
	})
}

func rangesOf(pool *v1alpha1.PodIPPool) []netip.Prefix {
	var all []netip.Prefix
	for _, c := range cidrsOf(pool) {
		if p, err := netip.ParsePrefix(c.CIDR); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// leavingRows returns the blocks of the target that do not cool down yet.
func leavingRows(c *cluster.Cluster, t target) []list.BlockRow {
	var rows []list.BlockRow
	for _, r := range list.BlockRows(c, list.BlockFilter{Pool: t.pool}) {
		if r.Phase != ipalloc.CoolingDown.String() && ipalloc.Covered(r.CIDR, t.ranges) {
			rows = append(rows, r)
		}
	}
	return rows
}
