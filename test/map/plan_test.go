package mapbrowser

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

func planTime() time.Time { return time.Date(2026, 11, 20, 14, 5, 0, 0, time.UTC) }

const (
	blockBits = 27
	perNode   = 8
)

// planOf returns an address plan with a number of /27 blocks, which fill seven eighths of a CIDR,
// the same each time. Most are in service, some are draining or cooling down.
func planOf(blocks int) *addressmap.Map {
	cells := bits.Len(uint(blocks * 8 / 7))
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10}), blockBits-cells)
	pool := addressmap.Pool{
		PoolRow: list.PoolRow{
			Pool: "large", Family: "ipv4", BlockBits: blockBits, State: "Ready", Selected: (blocks + perNode - 1) / perNode,
			Assignable: 1 << cells, Free: 1<<cells - int64(blocks),
		},
		Sections: []addressmap.Section{{CIDR: cidr, Of: cidr}},
		Reserved: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10}), 25)},
	}
	m := &addressmap.Map{Time: planTime(), Cluster: "made-up", Blocks: make([]list.BlockRow, 0, blocks)}
	draw := rand.New(rand.NewPCG(1, 2))
	// A node's blocks come in runs, and have about equal numbers of pods.
	node, run, full := "", 0, 0
	for cell := 4; len(m.Blocks) < blocks; cell++ {
		if draw.IntN(12) == 0 && 1<<cells-cell > blocks-len(m.Blocks) {
			continue
		}
		if run == 0 {
			node, run, full = fmt.Sprintf("node-%05d", draw.IntN(pool.Selected)), 1+draw.IntN(4), draw.IntN(28)
		}
		run--
		b := blockOf(cellOf(cell), node, min(30, max(0, full+draw.IntN(9)-3)))
		count(&pool, &b, draw.IntN(60))
		m.Blocks = append(m.Blocks, b)
	}
	m.Pools = []addressmap.Pool{pool}
	return m
}

func count(p *addressmap.Pool, b *list.BlockRow, luck int) {
	p.Addresses += b.Addresses
	p.Used += b.Used
	since := planTime().Add(-time.Minute)
	switch luck {
	case 0:
		b.Phase, b.Reason, b.Since, b.WaitsFor = "Draining", "Reclaim", since, "pods default/web-0"
		p.Blocks.Draining++
	case 1:
		b.Phase, b.Reason, b.Since = "CoolingDown", "Reclaim", since
		p.Blocks.CoolingDown++
	default:
		p.Blocks.InService++
	}
}

// cellOf returns a block's CIDR by its number.
func cellOf(n int) netip.Prefix {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24+uint32(n)<<(32-blockBits))
	return netip.PrefixFrom(netip.AddrFrom4(a), blockBits)
}

// blockOf returns a block in service with a number of pods.
func blockOf(cidr netip.Prefix, node string, pods int) list.BlockRow {
	b := list.BlockRow{
		CIDR: cidr, Pool: "large", Node: node, Phase: "InService", Addresses: 30, Used: pods,
		Created: planTime().Add(-26 * time.Hour),
	}
	ip := cidr.Addr()
	for i := range pods {
		ip = ip.Next()
		b.Users = append(b.Users, list.User{IP: ip, Name: fmt.Sprintf("shop/web-%s-%d", cidr.Addr(), i)})
	}
	return b
}
