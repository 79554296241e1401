package expand

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// restoreUsed publishes addresses in use that have lost their place in the pool,
// as when a CiliumNode was deleted in the middle of a drain: without it their
// pods are not restored when the agent restarts. That an address is reserved or
// its block drains is no reason against it; no cap is, either.
func (d *decision) restoreUsed() {
	if d.state.BlockDemand != nil && d.state.BlockDemand.Fixed {
		return // see assignFixed
	}
	var lost []netip.Addr
	for a := range d.state.Used {
		lost = d.appendLost(lost, a)
	}
	for a := range d.extra {
		lost = d.appendLost(lost, a)
	}
	slices.SortFunc(lost, netip.Addr.Compare)
	for _, a := range lost {
		b := d.blockOf(a)
		if d.state.BlockDemand != nil {
			d.rememberRestored(a, time.Time{})
			if len(b.publish) == 0 {
				d.assignBlock(b)
			}
		}
		if at, there := slices.BinarySearchFunc(b.publish, a, netip.Addr.Compare); !there {
			b.publish = slices.Insert(b.publish, at, a)
			d.published++
		}
	}
}

func (d *decision) appendLost(lost []netip.Addr, a netip.Addr) []netip.Addr {
	published := d.isPublished(a)
	_, stands := d.state.Release[a]
	if !d.ours(a) || published || stands || d.lostByAgent(a) {
		return lost
	}
	b := d.blockOf(a)
	if b == nil || !b.keepsUsed() {
		return lost
	}
	return append(lost, a)
}

// keepsUsed says that what is in use of the block can be published by this plan.
func (b *block) keepsUsed() bool {
	return !b.Conflict && !b.Orphaned && !b.undrained && b.Phase != ipalloc.CoolingDown
}
