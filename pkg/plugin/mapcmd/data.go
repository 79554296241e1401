package mapcmd

import (
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

// mapOf returns the cluster as a map of some pools or of all.
func mapOf(c *cluster.Cluster, name string, pools []string) *addressmap.Map {
	m := &addressmap.Map{Time: c.Now, Cluster: name, Pools: []addressmap.Pool{}, Blocks: []addressmap.Block{}}
	held, users := map[string][]netip.Prefix{}, map[string]map[netip.Addr]string{}
	for _, r := range list.BlockRows(c, list.BlockFilter{}) {
		if !wanted(pools, r.Pool) {
			continue
		}
		if users[r.Node] == nil {
			users[r.Node] = c.Users(r.Node)
		}
		m.Blocks = append(m.Blocks, addressmap.Block{
			CIDR: r.CIDR, Pool: r.Pool, Node: r.Node, Phase: r.Phase, Reason: r.Reason, Since: r.Since, WaitsFor: r.WaitsFor,
			Conflict: r.Conflict, Addresses: r.Addresses, Created: r.Created, Users: usersIn(r.CIDR, users[r.Node]), Used: r.Used,
		})
		held[r.Pool] = append(held[r.Pool], r.CIDR)
	}
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

// usersIn returns the users of a node's addresses that lie in a block, by address.
func usersIn(cidr netip.Prefix, all map[netip.Addr]string) []addressmap.User {
	var users []addressmap.User
	for addr, name := range all {
		if cidr.Contains(addr) {
			users = append(users, addressmap.User{IP: addr, Name: name})
		}
	}
	slices.SortFunc(users, func(a, b addressmap.User) int { return a.IP.Compare(b.IP) })
	return users
}
