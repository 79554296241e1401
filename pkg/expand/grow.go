package expand

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// fillBlocks publishes what blocks in service lack, lowest address first, and
// sets the capacity.
func (d *decision) fillBlocks() {
	d.plan.Capacity = d.openCapacity()
	for i := range d.blocks {
		if b := &d.blocks[i]; b.serving() && b.held < len(b.Usable) {
			d.fillBlock(b)
		}
	}
}

// fillBlock counts an address whose release entry still stands as coming, but
// does not publish it: back in the pool it would be lost to the node until the
// entry goes.
func (d *decision) fillBlock(b *block) {
	for _, a := range b.Usable {
		if d.room() == 0 {
			return
		}
		if _, there := d.state.Pool[a]; there || d.blockOf(a) != b {
			continue
		}
		d.expect(b, 1)
		if _, stands := d.state.Release[a]; !stands {
			b.publish = append(b.publish, a)
		}
	}
}

// expect counts n addresses of b that this or a later plan publishes.
func (d *decision) expect(b *block, n int) {
	b.coming += n
	d.published += n
	d.plan.Capacity += n
}

// room is how many addresses more the pool may hold. MaxAddresses and
// max-allocate cap all that is published, but for what takes the place of a block
// that must go. max-above-watermark caps only the capacity, or a block that leaves
// would stand in the way of its replacement.
func (d *decision) room() int {
	room := max(d.hardCap-d.published, d.replaceable())
	if above := limit(d.state.Limits.MaxAboveWatermark); above > 0 {
		room = min(room, d.target+above-d.plan.Capacity)
	}
	return max(room, 0)
}

// replaceable is how many addresses may be published beyond the caps, in place of
// those of blocks that must go: what pods need and no more, or the CiliumNode would
// hold two large blocks at once. The rest follows as the old addresses leave.
// Whatever leaves, the object stays within twice its limit.
func (d *decision) replaceable() int {
	departing := 0
	for i := range d.blocks {
		if b := &d.blocks[i]; b.departing() {
			departing += b.published
		}
	}
	if departing == 0 {
		return 0
	}
	return min(
		min(d.need, d.hardCap)-d.plan.Capacity,
		d.hardCap-(d.published-departing),
		2*d.policy.MaxAddresses-d.published,
	)
}

// deficit is how many addresses the node lacks of those it may have.
func (d *decision) deficit() int { return min(d.target, d.hardCap) - d.plan.Capacity }

func (d *decision) servingBlocks() int {
	n := 0
	for i := range d.blocks {
		if d.blocks[i].serving() {
			n++
		}
	}
	return n
}

// readmit returns blocks to service, beyond any cap on blocks, once the reason they
// left no longer holds.
func (d *decision) readmit() {
	for i := range d.blocks {
		if b := &d.blocks[i]; d.readmits(b) {
			d.takeBack(b)
		}
	}
}

// readmits reports whether the reason no longer holds for which a block left: its node
// was gone, whose pods may still have its addresses, or its removal is no longer requested.
func (d *decision) readmits(b *block) bool {
	returned := b.Phase == ipalloc.CoolingDown && b.Reason == NodeGone
	// Of whole blocks none is reclaimed; one in use was restored.
	reprieved := b.Phase == ipalloc.Draining && (b.Reason != Reclaim || d.state.BlockDemand != nil && b.Listed)
	return b.mayReturn() && (returned || reprieved) && !d.superseded(b)
}

// mayReturn says that a block that is leaving can be restored to service.
func (b *block) mayReturn() bool {
	return b.Phase != ipalloc.InService && b.Request == None && !b.Conflict && !b.undrained
}

// undrain takes back as many leaving blocks as the deficit needs.
func (d *decision) undrain() {
	if d.deficit() <= 0 {
		return
	}
	var leaving []*block
	for i := range d.blocks {
		if b := &d.blocks[i]; b.mayReturn() && !b.closed {
			leaving = append(leaving, b)
		}
	}
	slices.SortFunc(leaving, func(a, b *block) int {
		return cmp.Or(
			cmp.Compare(a.Phase, b.Phase),
			cmp.Compare(b.published, a.published),
			a.CIDR.Compare(b.CIDR),
		)
	})
	serving := d.servingBlocks()
	for _, b := range leaving {
		if d.deficit() <= 0 || serving >= d.policy.MaxBlocks {
			return
		}
		if b.open > 0 || len(b.Usable) > b.held && d.room() > 0 {
			d.takeBack(b)
			serving++
		}
	}
}

func (d *decision) takeBack(b *block) {
	b.undrained = true
	d.plan.Undrain = append(d.plan.Undrain, b.CIDR)
	if !b.counted {
		d.plan.Capacity += b.open
	}
	d.expect(b, min(len(b.Usable)-b.held, d.room()))
}

// reserveWait is when a node that claims nothing for its reserve, as pods elsewhere wait
// for blocks, looks again.
const reserveWait = time.Minute

// toClaim is how many addresses the node should claim. What takes the place of a block that
// must go is no reserve.
func (d *decision) toClaim() int {
	deficit := d.deficit()
	departs := func(b block) bool { return b.departing() }
	if !d.state.Scarce || deficit <= 0 || slices.ContainsFunc(d.blocks, departs) {
		return deficit
	}
	needed := min(deficit, d.unreserved-d.plan.Capacity)
	if needed < deficit {
		d.requeueAt(d.now.Add(reserveWait))
	}
	return needed
}

// claim requests the rest of the deficit at once: a burst of pods must not wait
// for one block after the other.
func (d *decision) claim() {
	growth := 0
	deficit, room := d.toClaim(), d.room()
	blocks := d.policy.MaxBlocks - d.servingBlocks()
	if deficit > 0 && blocks > 0 && room > 0 {
		growth = room
		d.plan.Claim = Claim{Addresses: min(deficit, room), Blocks: blocks, Room: room}
	}
	d.plan.Shortage = max(0, d.plan.Demand+d.shut-d.plan.Capacity-growth-d.plan.ServedElsewhere)
}

// countServedElsewhere counts how much of the demand is met by addresses that are not
// capacity: those in use in blocks that leave or in no block, and all that a block
// still in service has, though it must go. Without it a drain whose pods run on would
// look like a shortage.
func (d *decision) countServedElsewhere() {
	if d.plan.Demand <= d.plan.Capacity {
		return
	}
	n := 0
	for i := range d.blocks {
		if b := &d.blocks[i]; b.asked() {
			n += b.open
		}
	}
	for a := range d.state.Used {
		if d.ours(a) && d.state.Pool[a] == "" && !d.counted(a) {
			n++
		}
	}
	d.plan.ServedElsewhere = n
}

// counted says that a is part of the capacity, or of an asked block's open
// addresses.
func (d *decision) counted(a netip.Addr) bool {
	b := d.blockOf(a)
	if b == nil {
		_, published := d.state.Pool[a]
		return published && !withheld(d.state.Release[a])
	}
	if !b.serving() && !b.asked() {
		return false
	}
	_, published := d.state.Pool[a]
	return b.usable(a) && (published || b.serving())
}
