package pool

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestBlocksPerNode(t *testing.T) {
	sized := func(bits int32, change func(*v1alpha1.PodIPPoolSpec)) *v1alpha1.PodIPPool {
		obj := fixtures.PodIPPool("p", 1, "10.0.0.0/20")
		obj.Spec.IPv4.BlockSize = bits
		if change != nil {
			change(&obj.Spec)
		}
		return obj
	}
	number := func(n int32) *int32 { return &n }
	tests := map[string]struct {
		pool *v1alpha1.PodIPPool
		want int64
	}{
		"30 addresses, and 2 for the agent and 4 free are requested": {sized(27, nil), 1},
		"6 addresses": {sized(29, nil), 1},
		"2 addresses": {sized(30, nil), 3},
		"2 addresses, and no more than 2 blocks are allowed": {
			sized(30, func(s *v1alpha1.PodIPPoolSpec) { s.Expand.MaxBlocksPerNode = number(2) }), 2,
		},
		"30 addresses, and 100 are to be free": {
			sized(27, func(s *v1alpha1.PodIPPoolSpec) { s.Expand.MinFree = number(100) }), 4,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pool := fixtures.PoolOf(t, test.pool)
			if got := blocksPerNode(pool, ipalloc.IPv4); got != test.want {
				t.Errorf("a node takes %d blocks, want %d", got, test.want)
			}
			if n := Room(pool, ipalloc.IPv4, 3*test.want+test.want-1); n != 3 {
				t.Errorf("%d nodes fit, want 3", n)
			}
		})
	}
}
