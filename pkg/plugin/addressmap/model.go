// Package addressmap is kubectl cilium-pool map: the address plan of a cluster, with each pool's
// CIDRs as a map with a cell per block, on a page that a browser shows live. The page draws; the
// server knows no cluster, but a Map.
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
	Blocks []list.BlockRow `json:"blocks"`
}

// Pool is one family of a pool. Its blocks are the cells.
type Pool struct {
	list.PoolRow
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

func (m *Map) block(cidr netip.Prefix) *list.BlockRow {
	i, ok := slices.BinarySearchFunc(m.Blocks, cidr, func(b list.BlockRow, c netip.Prefix) int { return b.CIDR.Compare(c) })
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
	Set  []list.BlockRow `json:"set"`
	Gone []netip.Prefix  `json:"gone"`
}

// changeTo returns the difference from m to next. Both are sorted, so one pass finds it.
func (m *Map) changeTo(next *Map) change {
	c := change{Time: next.Time, Pools: next.Pools, Set: []list.BlockRow{}, Gone: []netip.Prefix{}}
	old := m.Blocks
	for i := range next.Blocks {
		b := &next.Blocks[i]
		for len(old) > 0 && old[0].CIDR.Compare(b.CIDR) < 0 {
			c.Gone = append(c.Gone, old[0].CIDR)
			old = old[1:]
		}
		known := len(old) > 0 && old[0].CIDR == b.CIDR
		if !known || !reflect.DeepEqual(&old[0], b) {
			c.Set = append(c.Set, withoutUsers(*b))
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

func withoutUsers(b list.BlockRow) list.BlockRow {
	b.Users = nil
	return b
}

// withoutUsers returns the map as browsers receive it: they request users separately.
func (m *Map) withoutUsers() *Map {
	bare := *m
	bare.Blocks = make([]list.BlockRow, len(m.Blocks))
	for i := range m.Blocks {
		bare.Blocks[i] = withoutUsers(m.Blocks[i])
	}
	return &bare
}

const (
	// wholeBits: a CIDR of up to two to the power of it cells is drawn as a whole.
	wholeBits = 18
	// windowBits are the cells of a window into a larger one.
	windowBits = 12
	// mostWindows is the largest number of windows before they are enlarged.
	mostWindows = 16
)

// sectionsOf returns the parts of a range that are drawn: all of it or, if it has too many
// cells (a /64 of /122 has 2^58), the aligned windows that contain blocks, and the first one.
// bits is the prefix length of a cell.
func sectionsOf(r Section, bits int, blocks []netip.Prefix) []Section {
	if bits-r.CIDR.Bits() <= wholeBits {
		return []Section{r}
	}
	var windows []netip.Prefix
	for size := windowBits; ; size += 2 {
		windows = windowsOf(r.CIDR, bits-size, blocks)
		if len(windows) <= mostWindows || size >= wholeBits {
			break
		}
	}
	sections := make([]Section, len(windows))
	for i, w := range windows {
		sections[i] = r
		sections[i].CIDR = w
	}
	return sections
}

func windowsOf(cidr netip.Prefix, bits int, blocks []netip.Prefix) []netip.Prefix {
	windows := []netip.Prefix{netip.PrefixFrom(cidr.Addr(), bits).Masked()}
	for _, b := range blocks {
		if cidr.Contains(b.Addr()) {
			windows = append(windows, netip.PrefixFrom(b.Addr(), bits).Masked())
		}
	}
	slices.SortFunc(windows, netip.Prefix.Compare)
	return slices.Compact(windows)
}
