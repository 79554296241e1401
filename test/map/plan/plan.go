// Package plan generates address plans of any size, the same each time.
package plan

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
)

// Time returns the time of all plans.
func Time() time.Time { return time.Date(2026, 11, 20, 14, 5, 0, 0, time.UTC) }

const (
	blockBits = 27
	perNode   = 8
)

// Of returns a plan with a number of /27 blocks, which fill seven eighths of a CIDR.
// Most are in service, some are draining or cooling down.
func Of(blocks int) *addressmap.Map {
	cells := bits.Len(uint(blocks * 8 / 7))
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10}), blockBits-cells)
	pool := addressmap.Pool{
		Name: "large", Family: "ipv4", BlockBits: blockBits, State: "Ready", Nodes: (blocks + perNode - 1) / perNode,
		Total: 1 << cells, Free: 1<<cells - uint64(blocks), Sections: []addressmap.Section{{CIDR: cidr, Of: cidr}},
		Reserved: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10}), 25)},
	}
	m := &addressmap.Map{Time: Time(), Cluster: "made-up", Blocks: make([]addressmap.Block, 0, blocks)}
	draw := rand.New(rand.NewPCG(1, 2))
	// A node's blocks come in runs, and have about equal numbers of pods.
	node, run, full := "", 0, 0
	for cell := 4; len(m.Blocks) < blocks; cell++ {
		if draw.IntN(12) == 0 && 1<<cells-cell > blocks-len(m.Blocks) {
			continue
		}
		if run == 0 {
			node, run, full = fmt.Sprintf("node-%05d", draw.IntN(pool.Nodes)), 1+draw.IntN(4), draw.IntN(28)
		}
		run--
		b := Block(Cell(cell), node, min(30, max(0, full+draw.IntN(9)-3)))
		count(&pool, &b, draw.IntN(60))
		m.Blocks = append(m.Blocks, b)
	}
	m.Pools = []addressmap.Pool{pool}
	return m
}

func count(p *addressmap.Pool, b *addressmap.Block, luck int) {
	p.Addresses += b.Addresses
	p.Used += b.Used
	since := Time().Add(-time.Minute)
	switch luck {
	case 0:
		b.Phase, b.Reason, b.Since, b.WaitsFor = addressmap.Draining, "Reclaim", since, "pods default/web-0"
		p.Draining++
	case 1:
		b.Phase, b.Reason, b.Since = addressmap.CoolingDown, "Reclaim", since
		p.CoolingDown++
	default:
		p.InService++
	}
}

// Cell returns a block's CIDR by its number.
func Cell(n int) netip.Prefix {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24+uint32(n)<<(32-blockBits))
	return netip.PrefixFrom(netip.AddrFrom4(a), blockBits)
}

// Block returns a block in service with a number of pods.
func Block(cidr netip.Prefix, node string, pods int) addressmap.Block {
	b := addressmap.Block{
		CIDR: cidr, Pool: "large", Node: node, Phase: addressmap.InService, Addresses: 30, Used: pods,
		Created: Time().Add(-26 * time.Hour),
	}
	ip := cidr.Addr()
	for i := range pods {
		ip = ip.Next()
		b.Users = append(b.Users, addressmap.User{IP: ip, Name: fmt.Sprintf("shop/web-%s-%d", cidr.Addr(), i)})
	}
	return b
}
