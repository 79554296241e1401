package bed

import (
	"net/netip"
	"testing"
)

// Each pool has its own part of PoolCIDR, which contains all blocks of its nodes, each
// once.
func TestPools(t *testing.T) {
	w := World{Nodes: 3125, Pools: 200, Blocks: 16}
	if err := w.Fits(); err != nil {
		t.Fatal(err)
	}
	ranges := map[string]netip.Prefix{}
	for _, p := range w.pools() {
		cidr := netip.MustParsePrefix(p.Spec.IPv4.CIDRs[0].CIDR)
		for other, taken := range ranges {
			if taken.Overlaps(cidr) {
				t.Fatalf("%s of %s overlaps %s of %s", cidr, p.Name, taken, other)
			}
		}
		if ranges[p.Name] = cidr; cidr != cidr.Masked() || !netip.MustParsePrefix(PoolCIDR).Contains(cidr.Addr()) {
			t.Fatalf("%s has %s", p.Name, cidr)
		}
	}
	seen := map[netip.Prefix]bool{}
	for i := range w.Nodes {
		pool := ranges[w.node(i).Labels[poolLabel]]
		for j := range w.Blocks {
			cidr := w.block(i, j)
			if seen[cidr] || !pool.Contains(cidr.Addr()) {
				t.Fatalf("block %d of node %d is %s, its pool has %s", j, i, cidr, pool)
			}
			seen[cidr] = true
		}
	}
}

func TestOnePool(t *testing.T) {
	w := World{Nodes: 2, Blocks: 3}
	if got, want := w.block(1, 2), Block(BlockOf(1, 2, 3)); got != want {
		t.Errorf("block 2 of node 1 is %s, not %s", got, want)
	}
	if pools := w.pools(); len(pools) != 1 || pools[0].Name != PoolName || pools[0].Spec.IPv4.CIDRs[0].CIDR != PoolCIDR || pools[0].Spec.NodeSelector != nil {
		t.Errorf("the pools are %+v", pools)
	}
	if _, labelled := w.node(0).Labels[poolLabel]; labelled {
		t.Error("a node of one pool has a label for it")
	}
}

func TestFits(t *testing.T) {
	tests := map[string]struct {
		w    World
		fits bool
	}{
		"one pool":                {World{Nodes: 50_000, Blocks: 1}, true},
		"one pool, too many":      {World{Nodes: 50_000, Blocks: 2}, false},
		"one pool, none is added": {World{Nodes: 50_000, Blocks: 2, Still: true}, true},
		"one pool, not even so":   {World{Nodes: 70_000, Blocks: 2, Still: true}, false},
		"a block left for each":   {World{Nodes: 30 * 200, Pools: 200, Blocks: 16}, true},
		"none left for the last":  {World{Nodes: 31 * 200, Pools: 200, Blocks: 16}, false},
		"more pools than blocks":  {World{Nodes: 1, Pools: 1 << 18, Blocks: 1}, false},
		"as many pools as blocks": {World{Nodes: 1, Pools: 1 << 17}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := test.w.Fits(); (err == nil) != test.fits {
				t.Errorf("got %v", err)
			}
		})
	}
}
