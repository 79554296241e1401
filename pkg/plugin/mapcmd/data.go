package mapcmd

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

// mapOf returns the cluster as a map of some pools or of all.
func mapOf(c *cluster.Cluster, name string, pools []string) *addressmap.Map {
	m := &addressmap.Map{Time: c.Now, Cluster: name, Pools: []addressmap.Pool{}, Blocks: []addressmap.Block{}}
	held := map[string][]netip.Prefix{}
	for _, node := range c.Ledger.Nodes() {
		for _, b := range mapBlocks(c, node) {
			if wanted(pools, b.Pool) {
				m.Blocks = append(m.Blocks, b)
				held[b.Pool] = append(held[b.Pool], b.CIDR)
			}
		}
	}
	slices.SortFunc(m.Blocks, func(a, b addressmap.Block) int { return a.CIDR.Compare(b.CIDR) })
	for _, row := range list.PoolRows(c) {
		if wanted(pools, row.Pool) {
			m.Pools = append(m.Pools, mapPool(c, &row, held[row.Pool]))
		}
	}
	m.Pools = append(m.Pools, gonePools(m)...)
	return m
}

func mapPool(c *cluster.Cluster, r *list.PoolRow, held []netip.Prefix) addressmap.Pool {
	p := addressmap.Pool{
		Name: r.Pool, Family: r.Family, BlockBits: r.BlockBits, State: r.State, Message: r.Message, Nodes: r.Selected,
		Total: uint64(r.Total), Free: uint64(r.Free), Addresses: r.Addresses, Used: r.Used,
		InService: r.Blocks.InService, Draining: r.Blocks.Draining, CoolingDown: r.Blocks.CoolingDown,
		Sections: []addressmap.Section{},
	}
	pool := c.Pools.Get(r.Pool)
	if pool == nil {
		return p
	}
	for _, f := range ipalloc.Families() {
		ranges, ok := pool.Ranges(f)
		if !ok || f.String() != r.Family {
			continue
		}
		for _, rng := range ranges.CIDRs {
			s := addressmap.Section{CIDR: rng.CIDR, Of: rng.CIDR, Cordoned: !rng.Allocates(), Drains: rng.Drains(), ClosedBy: rng.ClosedBy}
			p.Sections = append(p.Sections, addressmap.SectionsOf(s, ranges.Bits, held)...)
		}
		for _, reserved := range pool.Reserved.Prefixes() {
			if ipalloc.FamilyOf(reserved.Addr()) == f {
				p.Reserved = append(p.Reserved, reserved)
			}
		}
	}
	return p
}

// gonePools returns placeholders for pools, or families of them, that blocks name and that do
// not exist.
func gonePools(m *addressmap.Map) []addressmap.Pool {
	type key struct{ name, family string }
	known := map[key]bool{}
	for i := range m.Pools {
		known[key{m.Pools[i].Name, m.Pools[i].Family}] = true
	}
	var gone []addressmap.Pool
	index := map[key]int{}
	for i := range m.Blocks {
		b := &m.Blocks[i]
		k := key{b.Pool, ipalloc.FamilyOf(b.CIDR.Addr()).String()}
		if known[k] {
			continue
		}
		at, ok := index[k]
		if !ok {
			at = len(gone)
			index[k] = at
			gone = append(gone, addressmap.Pool{
				Name: k.name, Family: k.family, BlockBits: b.CIDR.Bits(), State: "Gone",
				Message: "blocks name this pool, and there is none", Sections: []addressmap.Section{},
			})
		}
		countMapBlock(&gone[at], b)
	}
	return gone
}

func countMapBlock(p *addressmap.Pool, b *addressmap.Block) {
	switch b.Phase {
	case addressmap.Draining:
		p.Draining++
	case addressmap.CoolingDown:
		p.CoolingDown++
	default:
		p.InService++
	}
	p.Addresses += b.Addresses
	p.Used += b.Used
}

// mapBlocks returns the blocks of a node.
func mapBlocks(c *cluster.Cluster, node string) []addressmap.Block {
	blocks := c.Ledger.NodeBlocks(node)
	all := c.Users(node)
	users := usersByBlock(all, blocks)
	out := make([]addressmap.Block, len(blocks))
	for i, b := range blocks {
		out[i] = addressmap.Block{
			CIDR: b.CIDR, Pool: b.Pool, Node: b.Node, Phase: b.Phase.String(), Reason: string(b.Reason),
			WaitsFor: c.Wait(b, all).What, Conflict: b.Conflict, Addresses: c.UsableCount(b), Created: b.Created,
			Users: users[i], Used: len(users[i]),
		}
		if !b.Since.IsZero() {
			out[i].Since = &blocks[i].Since
		}
	}
	return out
}

// usersByBlock sorts the users of a node under its blocks, and by address.
func usersByBlock(all map[netip.Addr]string, blocks []crd.Block) [][]addressmap.User {
	out := make([][]addressmap.User, len(blocks))
	for addr, name := range all {
		u := addressmap.User{IP: addr, Name: strings.TrimSuffix(name, " [restored]")}
		for i := range blocks {
			if blocks[i].CIDR.Contains(addr) {
				out[i] = append(out[i], u)
			}
		}
	}
	for _, users := range out {
		slices.SortFunc(users, func(a, b addressmap.User) int { return a.IP.Compare(b.IP) })
	}
	return out
}
