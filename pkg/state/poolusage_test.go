package state

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestRoom(t *testing.T) {
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
		want int64 // blocks of a node
	}{
		"30 addresses, and 2 for the agent and 4 free are requested": {sized(27, nil), 1},
		"6 addresses": {sized(29, nil), 1},
		"2 addresses": {sized(30, nil), 3},
		"2 addresses, and no more than 2 blocks are allowed": {
			sized(30, func(s *v1alpha1.PodIPPoolSpec) { s.Expand.MaxBlocksPerNode = number(2) }), 2,
		},
		"30 addresses, and 100 are to be free": {
			sized(27, func(s *v1alpha1.PodIPPoolSpec) { s.Expand.MinFreeAddresses = number(100) }), 4,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pool := fixtures.PoolOf(t, test.pool)
			for free, want := range map[int64]int64{3*test.want - 1: 2, 3 * test.want: 3, 4*test.want - 1: 3} {
				if n := NodesThatFit(pool, ipalloc.IPv4, free); n != want {
					t.Errorf("%d nodes fit into %d blocks, want %d", n, free, want)
				}
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
		u := FamilyUsage{Status: v1alpha1.FamilyStatus{Blocks: v1alpha1.StateCounts{Assignable: test.whole, Held: test.part, Free: max(0, test.whole-test.part)}}}
		if got := u.Full(); got != test.want {
			t.Errorf("%d of %d: %d%%, want %d%%", test.part, test.whole, got, test.want)
		}
	}
}

// A cooling block with an address that is withheld from nodes does not come back to them.
func TestCooldowns(t *testing.T) {
	cooling := fixtures.At(fixtures.Block("10.0.0.0/30", "p", "n", 1), 2, ipalloc.CoolingDown)
	c := clusterOf(cooling)
	c.Pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	blocks := func() int { return c.Ledger.Cooldowns(c.Pools.Get("p"), ipalloc.IPv4).Blocks }
	if n := blocks(); n != 1 {
		t.Errorf("%d blocks come back, want 1", n)
	}
	c.Ledger.Pins.Set(crd.Pin{CIDR: cooling.CIDR, Node: "n"})
	if n := blocks(); n != 0 {
		t.Errorf("%d blocks come back to nodes, though one node alone may have them", n)
	}
}

// A node counts once, and the first few are named, in whichever order blocks come.
func TestUsageNamesNodes(t *testing.T) {
	for of, want := range map[string]PoolUsage{
		"": {}, "b a b": {Nodes: 2, First: []string{"a", "b"}}, "f e d c b a a": {Nodes: 6, First: []string{"a", "b", "c", "d", "e"}},
	} {
		var blocks []crd.Block
		for i, node := range strings.Fields(of) {
			blocks = append(blocks, fixtures.Block(fmt.Sprintf("10.0.0.%d/30", 4*i), "p", node, i))
		}
		if u := UsageOf(nil, slices.Values(blocks), nil); u.Nodes != want.Nodes || !slices.Equal(u.First, want.First) {
			t.Errorf("%q: %d nodes, first %v", of, u.Nodes, u.First)
		}
	}
}
