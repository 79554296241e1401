// Package addressmap is kubectl cilium-pool map: the address plan of a cluster, with each pool's
// CIDRs as a map with a cell per block, as an SVG and as a page that a browser shows live. What
// draws knows no cluster, but a Map.
package addressmap

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

// Map is an address plan at one time.
type Map struct {
	Time time.Time `json:"time"`
	// Cluster is the cluster's display name.
	Cluster string `json:"cluster"`
	Pools   []Pool `json:"pools"`
	// Blocks are sorted by address. No two have the same CIDR.
	Blocks []Block `json:"blocks"`
}

// Pool is one family of a pool.
type Pool struct {
	Name   string `json:"name"`
	Family string `json:"family"`
	// BlockBits is the prefix length of a block, and so of a cell.
	BlockBits int `json:"blockBits"`
	// State is Ready or the problem, and Message has details.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	// Nodes is the number of nodes it rules.
	Nodes int `json:"nodes"`
	// Total and Free count blocks; Free are the blocks that can be claimed now.
	Total uint64 `json:"total"`
	Free  uint64 `json:"free"`
	list.PhaseCount
	// Addresses is the number of addresses of its blocks that pods can have, and Used the number in
	// use.
	Addresses int `json:"addresses"`
	Used      int `json:"used"`
	// Reserved are never assigned.
	Reserved []netip.Prefix `json:"reserved,omitempty"`
	Sections []Section      `json:"sections"`
}

// Section is a range that is drawn as one map.
type Section struct {
	CIDR netip.Prefix `json:"cidr"`
	// Of is the pool's CIDR that it is a part of: the same, unless that has too many cells to
	// draw.
	Of netip.Prefix `json:"of"`
	// Cordoned: no new blocks from here.
	Cordoned bool `json:"cordoned,omitempty"`
	// Drains: its blocks leave, too.
	Drains bool `json:"drains,omitempty"`
	// ClosedBy is the pool that provides these addresses instead.
	ClosedBy string `json:"closedBy,omitempty"`
}

func (s Section) closed() bool { return s.Cordoned || s.Drains || s.ClosedBy != "" }

func (p Pool) closed() bool { return slices.ContainsFunc(p.Sections, Section.closed) }

// Phases of a block.
const (
	InService   = "InService"
	Draining    = "Draining"
	CoolingDown = "CoolingDown"
)

// Block is a block that a node holds.
type Block struct {
	CIDR   netip.Prefix `json:"cidr"`
	Pool   string       `json:"pool"`
	Node   string       `json:"node"`
	Phase  string       `json:"phase"`
	Reason string       `json:"reason,omitempty"`
	// Since is when the phase began; zero in service.
	Since time.Time `json:"since,omitzero"`
	// WaitsFor is the obstacle to a leaving block.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Conflict: it overlaps an older block.
	Conflict  bool      `json:"conflict,omitempty"`
	Addresses int       `json:"addresses"`
	Used      int       `json:"used"`
	Created   time.Time `json:"created"`
	// Users are its addresses in use, sorted.
	Users []User `json:"users,omitempty"`
}

// User is who uses an address: a pod as namespace/name, or the agent itself.
type User struct {
	IP   netip.Addr `json:"ip"`
	Name string     `json:"name"`
}

func (m *Map) block(cidr netip.Prefix) *Block {
	i, ok := slices.BinarySearchFunc(m.Blocks, cidr, func(b Block, c netip.Prefix) int { return b.CIDR.Compare(c) })
	if !ok {
		return nil
	}
	return &m.Blocks[i]
}

// change is the difference between two maps, for a browser.
type change struct {
	Time  time.Time `json:"time"`
	Pools []Pool    `json:"pools"`
	// Set are new and changed blocks, without their users.
	Set  []Block        `json:"set"`
	Gone []netip.Prefix `json:"gone"`
}

// changeTo returns the difference from m to next. Both are sorted, so one pass finds it.
func (m *Map) changeTo(next *Map) change {
	c := change{Time: next.Time, Pools: next.Pools, Set: []Block{}, Gone: []netip.Prefix{}}
	old := m.Blocks
	for i := range next.Blocks {
		b := &next.Blocks[i]
		for len(old) > 0 && old[0].CIDR.Compare(b.CIDR) < 0 {
			c.Gone = append(c.Gone, old[0].CIDR)
			old = old[1:]
		}
		known := len(old) > 0 && old[0].CIDR == b.CIDR
		if !known || !reflect.DeepEqual(&old[0], b) {
			c.Set = append(c.Set, b.withoutUsers())
		}
		if known {
			old = old[1:]
		}
	}
	for i := range old {
		c.Gone = append(c.Gone, old[i].CIDR)
	}
	return c
}

func (b *Block) withoutUsers() Block {
	bare := *b
	bare.Users = nil
	return bare
}

// withoutUsers returns the map as browsers receive it: they request users separately.
func (m *Map) withoutUsers() *Map {
	bare := *m
	bare.Blocks = make([]Block, len(m.Blocks))
	for i := range m.Blocks {
		bare.Blocks[i] = m.Blocks[i].withoutUsers()
	}
	return &bare
}
