package state_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const (
	blocksPerNode = 16
	blockBits     = 28
)

// fleet is a ledger with blocks of several pools, 16 per node, all published.
type fleet struct {
	*state.Ledger
	pools  *state.Pools
	blocks []crd.Block
	nodes  []*ciliumnode.View
	listed map[types.UID]bool
	cuts   []ipalloc.Cut
}

func poolName(pool int) string { return fmt.Sprintf("p%d", pool) }

func newFleet(pools, blocks int) *fleet {
	if pools > 1 {
		return newFleetIn(16, pools, blocks)
	}
	return newFleetIn(8, pools, blocks)
}

// newFleetIn is newFleet with ranges of another prefix length.
func newFleetIn(size, pools, blocks int) *fleet {
	f := &fleet{Ledger: state.NewLedger(), listed: map[types.UID]bool{}}
	f.pools = state.NewPools(fixtures.Defaults(), f.Ledger)
	for pool := range pools {
		r := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(pool)}), size)
		obj := fixtures.PodIPPool(poolName(pool), 8, r.String())
		obj.Spec.IPv4.BlockSize = blockBits
		f.pools.Set(obj)
		f.cuts = append(f.cuts, ipalloc.Cut{Ranges: []netip.Prefix{r}, BlockBits: blockBits})
	}
	for n := range blocks / blocksPerNode {
		pool, name := n%pools, fmt.Sprintf("n%05d", n)
		cn := fixtures.CiliumNode(name, "1")
		cn.UID = types.UID(name)
		var keys []string
		for j := range blocksPerNode {
			at := (n/pools*blocksPerNode + j) << (32 - blockBits)
			cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(pool + at>>16), byte(at >> 8), byte(at)}), blockBits)
			f.blocks = append(f.blocks, fixtures.Block(cidr.String(), poolName(pool), name, 1))
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, fixtures.PodCIDR(cidr.String()))
			for addr := cidr.Addr().Next(); cidr.Contains(addr.Next()); addr = addr.Next() {
				keys = append(keys, addr.String())
			}
		}
		cn.Spec.IPAM.Pool = fixtures.AllocationMap(keys...)
		f.nodes = append(f.nodes, ciliumnode.NewView(cn))
		f.listed[cn.UID] = true
	}
	for _, b := range f.blocks {
		f.Upsert(b)
	}
	for _, cn := range f.nodes {
		f.UpsertCiliumNode(cn)
	}
	f.SetReady()
	return f
}

// NamedElsewhere finds the addresses of a block that other CiliumNodes name, with any other
// reservations in it.
func TestNamedElsewhere(t *testing.T) {
	const block = "10.0.0.0/28"
	cn := func(name string, podCIDR string, keys ...string) *ciliumnode.View {
		obj := fixtures.CiliumNode(name, "1", podCIDR)
		obj.Spec.IPAM.Pool = fixtures.AllocationMap(keys...)
		return ciliumnode.NewView(obj)
	}
	tests := map[string]struct {
		nodes    []*ciliumnode.View
		excluded []netip.Prefix
		want     []netip.Prefix
	}{
		"nothing":                           {},
		"the node itself":                   {nodes: []*ciliumnode.View{cn("n", block, "10.0.0.1")}},
		"another one, an address":           {nodes: []*ciliumnode.View{cn("n", block), cn("m", "10.1.0.0/28", "10.0.0.3")}, want: fixtures.Prefixes("10.0.0.3/32")},
		"another one, a larger CIDR":        {nodes: []*ciliumnode.View{cn("m", "10.0.0.0/24")}, want: fixtures.Prefixes("10.0.0.0/24")},
		"another one, the same CIDR":        {nodes: []*ciliumnode.View{cn("n", block), cn("m", block)}, want: fixtures.Prefixes(block)},
		"the address of a Node":             {nodes: []*ciliumnode.View{cn("n", block)}, excluded: fixtures.Prefixes("10.0.0.5/32")},
		"the address of a Node and another": {nodes: []*ciliumnode.View{cn("m", "10.1.0.0/28", "10.0.0.3")}, excluded: fixtures.Prefixes("10.0.0.5/32"), want: fixtures.Prefixes("10.0.0.3/32")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := state.ReadyLedger(fixtures.Block(block, "p", "n", 1))
			l.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "x"}, tc.excluded)
			for _, cn := range tc.nodes {
				l.UpsertCiliumNode(cn)
			}
			if got := l.NamedElsewhere("n", fixtures.Prefix(block)); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// The blocks of a pool are read in parts, so the ledger may change meanwhile: a deleted block is
// left out, a changed one is included, and none appears twice.
func TestPoolBlocksWhileTheyChange(t *testing.T) {
	f := newFleet(1, 2_000)
	seen := map[netip.Prefix]crd.Block{}
	for b := range f.PoolBlocks(poolName(0)) {
		if _, twice := seen[b.CIDR]; twice {
			t.Fatalf("%s is there twice", b.CIDR)
		}
		if seen[b.CIDR] = b; len(seen) > 1 {
			continue
		}
		last := f.blocks[len(f.blocks)-2:]
		f.Upsert(fixtures.At(last[0], 9, ipalloc.Draining))
		f.Remove(last[1])
		f.Upsert(fixtures.Block("10.200.0.0/28", poolName(0), "late", 9))
	}
	last := f.blocks[len(f.blocks)-2:]
	if _, there := seen[last[1].CIDR]; there || len(seen) != len(f.blocks)-1 || seen[last[0].CIDR].Phase != ipalloc.Draining {
		t.Errorf("%d of %d blocks, %+v", len(seen), len(f.blocks), seen[last[0].CIDR])
	}
}

// BenchmarkLock reports the duration of calls, with 200 pools and with one, at half of, all of and
// twice 50,000 blocks. They hold the ledger's lock for nearly all of that time, except for
// poolBlocks and missingNodes, which hold it for 64 records at a time, and resolvePools, which
// holds the lock of the pools.
func BenchmarkLock(b *testing.B) {
	for _, pools := range []int{200, 1} {
		for _, blocks := range []int{25_000, 50_000, 100_000} {
			f := newFleet(pools, blocks)
			for name, call := range f.calls() {
				b.Run(fmt.Sprintf("%s/pools=%d/blocks=%d", name, pools, blocks), func(b *testing.B) {
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						call(i)
						i++
					}
				})
			}
		}
	}
}

// calls returns calls that occur in a storm of changes; each leaves the ledger as it was.
func (f *fleet) calls() map[string]func(i int) {
	version := 1
	next := func() string { version++; return fmt.Sprint(version) }
	return map[string]func(int){
		"blockChanges": func(i int) {
			b := f.blocks[i%len(f.blocks)]
			b.ResourceVersion = next()
			f.Upsert(b)
		},
		"claimAndForget": func(i int) {
			node := f.nodes[i%len(f.nodes)].Name
			pool := f.pools.Get(poolName(i % len(f.cuts)))
			cidr, _, err := f.Claim(ipalloc.IPv4, node, "", []*crd.Pool{pool})
			if err != nil {
				panic(err)
			}
			f.Forget(node, cidr)
		},
		"agentReports":   func(i int) { f.UpsertCiliumNode(f.nodes[i%len(f.nodes)].At(next())) },
		"excludeNode":    func(i int) { f.ExcludeCiliumNode(f.nodes[i%len(f.nodes)].Name) },
		"nodeBlocks":     func(i int) { f.NodeBlocks(f.nodes[i%len(f.nodes)].Name) },
		"free":           func(i int) { f.Free(f.cuts[i%len(f.cuts)]) },
		"excludedFrom":   func(i int) { f.ExcludedFrom(f.pools.Get(poolName(i % len(f.cuts)))) },
		"namedElsewhere": func(i int) { f.NamedElsewhere(f.blocks[i%len(f.blocks)].Node, f.blocks[i%len(f.blocks)].CIDR) },
		"poolBlocks": func(i int) {
			for range f.PoolBlocks(poolName(i % len(f.cuts))) {
			}
		},
		"missingNodes": func(int) { f.MissingCiliumNodes(f.listed, fmt.Sprint(version)) },
		"nodes":        func(int) { f.Nodes() },
	}
}
