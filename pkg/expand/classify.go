package expand

import (
	"net/netip"
	"slices"
	"sort"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// blockOf is the block that a belongs to, nil for a foreign address. Where
// blocks share addresses, these belong to the one without a conflict.
func (d *decision) blockOf(a netip.Addr) *block {
	if d.nested {
		return d.blockOfNested(a)
	}
	after := sort.Search(len(d.blocks), func(i int) bool {
		return d.blocks[i].CIDR.Addr().Compare(a) > 0
	})
	if after == 0 || !d.blocks[after-1].CIDR.Contains(a) {
		return nil
	}
	return &d.blocks[after-1]
}

func (d *decision) blockOfNested(a netip.Addr) *block {
	var found *block
	for i := range d.blocks {
		b := &d.blocks[i]
		if b.CIDR.Contains(a) && (found == nil || found.Conflict && !b.Conflict) {
			found = b
		}
	}
	return found
}

// leaving says that a published address of the block has to go by the
// handshake. Those of a block that cools down are for drainAgain.
func (b *block) leaving(usable bool) bool {
	switch b.Phase {
	case ipalloc.Draining:
		return true
	case ipalloc.InService:
		return b.Conflict || !usable
	default:
		return false
	}
}

// classify sorts what is published, marked and in use under its block.
func (d *decision) classify() {
	for a, owner := range d.state.Pool {
		if d.ours(a) {
			d.classifyPublished(a, owner)
		}
	}
	for a := range d.state.Release {
		if !d.ours(a) {
			continue
		}
		if b := d.blockOf(a); b != nil {
			b.entries++
		}
		d.walk = append(d.walk, a)
	}
	slices.SortFunc(d.walk, netip.Addr.Compare)

	for a, owner := range d.state.Used {
		d.classifyUsed(a, userOf(owner))
	}
	for a, u := range d.extra {
		d.classifyUsed(a, u)
	}
}

func (d *decision) classifyPublished(a netip.Addr, owner string) {
	d.published++
	entry, stands := d.state.Release[a]
	b := d.blockOf(a)
	if b == nil {
		if owner == "" && !withheld(entry) {
			d.foreign++
		}
		return
	}
	b.published++
	usable := b.usable(a)
	if usable {
		b.held++
	}
	if owner != "" {
		b.pinned = true
	} else if usable {
		b.open++
	}
	if !stands && b.leaving(usable) {
		d.walk = append(d.walk, a)
	}
}

func (d *decision) classifyUsed(a netip.Addr, u user) {
	if b := d.blockOf(a); b != nil {
		b.users++
		if u.agent {
			b.own++
			b.pinned = true
		}
	}
}

// withheld reports whether the agent allocates no address with this entry (Cilium
// v1.20.1, pkg/ipam/crd.go, isIPInReleaseHandshake).
func withheld(entry ReleaseStatus) bool {
	return entry == Marked || entry == Ready || entry == Released
}
