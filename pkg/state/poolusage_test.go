package state

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
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

// A pool that is not full must not be reported as full.
func TestFull(t *testing.T) {
	for _, test := range []struct {
		part, whole int64
		want        int32
	}{
		{0, 1000, 0}, {1, 1000, 0}, {10, 1000, 1}, {500, 1000, 50}, {999, 1000, 99}, {4095, 4096, 99}, {1000, 1000, 100},
		{1001, 1000, 100}, {0, 0, 100}, {math.MaxInt64 - 1, math.MaxInt64, 99}, {0, math.MaxInt64, 0},
	} {
		u := FamilyUsage{Status: v1alpha1.FamilyStatus{Blocks: v1alpha1.StateCounts{Total: test.whole, Free: test.whole - test.part}}}
		if got := u.Full(); got != test.want {
			t.Errorf("%d of %d: %d%%, want %d%%", test.part, test.whole, got, test.want)
		}
	}
}

// The first few nodes are those of a sorted list of all, in whichever order blocks come.
func TestFirstNodes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var first []string
		all := map[string]bool{}
		for range r.IntN(20) {
			node := fmt.Sprint("n", r.IntN(10))
			first, all[node] = withFirst(first, node), true
		}
		want := slices.Sorted(maps.Keys(all))
		if want = want[:min(len(want), NamedNodes)]; !slices.Equal(first, want) {
			t.Fatalf("first are %v, want %v", first, want)
		}
	}
}
