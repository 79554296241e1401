package state

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Pins are the part of a Ledger about the blocks that PodIPPins keep for nodes.
type Pins struct {
	*core
	exclusions *Exclusions
	nodes      *ciliumNodes

	pinned    *ipalloc.Space            // its blocks have whom they are pinned to as owners: see crd.Pin.For
	pinsOf    map[string][]netip.Prefix // the blocks of each node or pod, sorted
	ownerPins int                       // the number of blocks of pods
	// enforced are the pins that are blocks of a pool: no claim of another node takes these. A pin
	// of a wrong size could keep a whole pool from the cluster.
	enforced map[netip.Prefix]bool
	pools    map[string]*crd.Pool
}

// Set stores a pin. It returns the node or pod that had the block before, "" if it was not pinned.
func (p *Pins) Set(pin crd.Pin) (old string) {
	p.change(func() {
		old = p.unpin(pin.CIDR)
		_ = p.pinned.Restore(ipalloc.Held{CIDR: pin.CIDR, Owner: ipalloc.Owner{Node: pin.For()}}) // pins may overlap
		p.pinsOf[pin.For()] = append(p.pinsOf[pin.For()], pin.CIDR)
		slices.SortFunc(p.pinsOf[pin.For()], netip.Prefix.Compare)
		if pin.Owner != "" {
			p.ownerPins++
		}
		p.enforce(pin.CIDR, nil)
	})
	return old
}

// Remove drops the pin of a block.
func (p *Pins) Remove(cidr netip.Prefix) {
	p.change(func() {
		p.unpin(cidr)
		p.enforce(cidr, nil)
	})
}

func (p *Pins) unpin(cidr netip.Prefix) (node string) {
	owner, _ := p.pinned.Owner(cidr)
	if crd.IsOwner(owner.Node) {
		p.ownerPins--
	}
	removeFrom(p.pinsOf, owner.Node, cidr)
	p.pinned.Release(cidr)
	return owner.Node
}

// setPools replaces the pools, by name. Only pins in the pools that are gone or have come can be concerned.
func (p *Pins) setPools(pools map[string]*crd.Pool, removed, come []*crd.Pool) {
	p.pools = pools
	for _, pool := range come {
		for _, cidr := range p.inPool(pool) {
			p.enforce(cidr, pool)
		}
	}
	for _, pool := range removed {
		for _, cidr := range p.inPool(pool) {
			p.enforce(cidr, pools[pool.Name])
		}
	}
}

// inPool returns the pins that share addresses with the CIDRs of a pool.
func (p *Pins) inPool(pool *crd.Pool) (cidrs []netip.Prefix) {
	for _, r := range pool.AllRanges() {
		for _, pin := range heldIn(p.pinned, r.CIDR) {
			cidrs = append(cidrs, pin.CIDR)
		}
	}
	return cidrs
}

// enforce reserves the block of a pin that is in force now, and gives it back if it no longer is. likely,
// which may be nil, is tried first of all pools.
func (p *Pins) enforce(cidr netip.Prefix, likely *crd.Pool) {
	_, pinned := p.pinned.Owner(cidr)
	inForce := pinned && (isBlockOf(likely, cidr) || p.isOfPool(cidr))
	if inForce && !p.enforced[cidr] {
		p.enforced[cidr] = true
		p.exclusions.reserve(cidr)
		p.taken = append(p.taken, cidr)
	} else if !inForce && p.enforced[cidr] {
		delete(p.enforced, cidr)
		p.exclusions.unreserve(cidr)
		p.freed = append(p.freed, cidr)
	}
}

// isOfPool reports whether a CIDR is a block of the pool that assigns its addresses.
func (p *Pins) isOfPool(cidr netip.Prefix) bool {
	for _, pool := range p.pools {
		if isBlockOf(pool, cidr) {
			return true
		}
	}
	return false
}

// isBlockOf reports whether a CIDR is a block of a pool, which may be nil, that assigns its addresses.
func isBlockOf(pool *crd.Pool, cidr netip.Prefix) bool {
	return pool != nil && pool.OnGrid(cidr) && !pool.Yields(cidr)
}

// Reserve picks the lowest free block of a pool, and keeps it from all claims until Unreserve, while
// its pin is being created. It returns ipalloc.ErrExhausted if there is none.
func (p *Pins) Reserve(f ipalloc.Family, pool *crd.Pool) (cidr netip.Prefix, err error) {
	p.change(func() {
		cut, _ := pool.Cut(f)
		cidr, err = p.space.Claim(cut, ipalloc.Owner{Pool: pool.Name}, nil)
		if err == nil {
			p.space.Release(cidr)
			p.exclusions.reserve(cidr)
		}
	})
	return cidr, err
}

// ReserveOne is Reserve for one block. It returns ipalloc.ErrExhausted if the block is not free.
func (p *Pins) ReserveOne(cidr netip.Prefix, pool *crd.Pool) (err error) {
	p.change(func() {
		if !pool.OnGrid(cidr) || !pool.AssignsNow(cidr) || p.isTaken(cidr) || p.space.Reservations(cidr) > 0 {
			err = ipalloc.ErrExhausted
			return
		}
		p.exclusions.reserve(cidr)
	})
	return err
}

// Unreserve undoes a Reserve: the watch has shown the pin, or it was not created.
func (p *Pins) Unreserve(cidr netip.Prefix) {
	p.change(func() {
		p.exclusions.unreserve(cidr)
		p.freed = append(p.freed, cidr)
	})
}

// In returns the pins that share addresses with a CIDR, with their nodes or pods as owners.
func (p *Pins) In(cidr netip.Prefix) []ipalloc.Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	return heldIn(p.pinned, cidr)
}

// All returns the pinned blocks of all nodes, in no particular order.
func (p *Pins) All() []netip.Prefix {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(p.pinsOf))...)
}

// Of returns the blocks that are pinned to a node, or to a pod, sorted.
func (p *Pins) Of(owner string) []netip.Prefix {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pinsOf[owner])
}

// Owners returns the owners with pinned addresses, in no particular order.
func (p *Pins) Owners() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(p.pinsOf)), func(owner string) bool { return !crd.IsOwner(owner) })
}

// HasOwners reports whether any address is pinned to an owner.
func (p *Pins) HasOwners() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ownerPins > 0
}

// IsPinned reports whether a block is pinned to its node.
func (p *Pins) IsPinned(b crd.Block) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	owner, pinned := p.pinned.Owner(b.CIDR)
	return pinned && owner.Node == b.Node
}

// OwnerOf returns the owner that an address is kept for; "": none.
func (p *Pins) OwnerOf(cidr netip.Prefix) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	pinned, _ := p.pinned.Owner(cidr)
	if !crd.IsOwner(pinned.Node) {
		return ""
	}
	return pinned.Node
}

// Away returns the blocks of a pool, which may be nil, that are pinned and that no node holds.
func (p *Pins) Away(pool *crd.Pool) []netip.Prefix {
	p.mu.Lock()
	pinned := slices.Collect(maps.Keys(p.enforced))
	p.mu.Unlock()
	pinned = slices.DeleteFunc(pinned, func(cidr netip.Prefix) bool { return pool == nil || !pool.Contains(cidr) })
	var away []netip.Prefix
	inParts(&p.mu, pinned, func(cidr netip.Prefix) {
		if !p.isTaken(cidr) {
			away = append(away, cidr)
		}
	})
	return away
}

// isTaken reports whether a node holds or claims an address of a CIDR.
func (p *Pins) isTaken(cidr netip.Prefix) bool {
	_, ok := p.space.Owner(cidr)
	return ok || len(p.space.Overlapping(cidr)) > 0
}

// missing returns the blocks that are pinned to owner, a node or one of its pods, and that the
// node could claim, sorted: those of which no node holds or names an address, but for its own
// CiliumNode.
func (p *Pins) missing(owner, node string) []netip.Prefix {
	var out []netip.Prefix
	for _, cidr := range p.pinsOf[owner] {
		reserved := 1 // for the pin
		if n := p.nodes.seen[node]; n != nil {
			for _, named := range n.named {
				if named.Overlaps(cidr) {
					reserved++
				}
			}
		}
		if p.enforced[cidr] && !p.isTaken(cidr) && p.space.Reservations(cidr) == reserved {
			out = append(out, cidr)
		}
	}
	return out
}
