package ipalloc

import (
	"fmt"
	"net/netip"
)

// Space is the address space of a cluster, both families: the held blocks, and the reserved CIDRs.
// All other addresses are free. The zero Space is empty, not ready, and may be used.
//
// Its memory follows the most blocks it has ever held: about 55 bytes for a block with others
// beside it, beside the owners' strings. A call visits at most 22 nodes; Claim does so for each
// range and near block, Restore also looks at the reservations inside the block, and Overlapping,
// Free and Counts say more.
type Space struct {
	ready bool
	tries [2]trie // by Family
}

// NewSpace returns an empty Space that is not ready.
func NewSpace() *Space { return &Space{} }

// SetReady declares that all existing blocks have been restored and all reservations made, so that
// the rest is known to be free. It cannot be undone.
func (s *Space) SetReady() { s.ready = true }

// Ready reports whether SetReady was called.
func (s *Space) Ready() bool { return s.ready }

// Restore records a block that exists already, ready or not. It is for blocks read back from
// storage, so it turns none away because of other blocks: whatever it returns for a valid CIDR, no
// later Claim returns an address of it.
//
//   - The same block again (CIDR, pool and node): its phase is updated.
//   - The same CIDR of another pool or node: a *ConflictError. The first owner
//     stays. To hand a block over, Release it first.
//   - It shares addresses with blocks of other CIDRs: it is recorded, and a
//     *ConflictError names the first of them by address, then length.
//
// Reserved addresses are no conflict. A CIDR that is invalid, or has bits set beyond its length, is
// an error, and is not recorded.
func (s *Space) Restore(h Held) error {
	f, p, ok := blockPrefix(h.CIDR)
	if !ok {
		return fmt.Errorf("block %s of %s is not a CIDR without host bits", h.CIDR, h.Owner)
	}
	t := &s.tries[f]
	if o := t.ownerOf(p); o != nil {
		if o.Pool != h.Owner.Pool || o.Node != h.Owner.Node {
			return &ConflictError{New: h, Old: Held{CIDR: h.CIDR, Owner: *o}}
		}
		o.Phase = h.Owner.Phase
		return nil
	}
	old, conflict := t.firstOverlap(f, p)
	t.hold(p, h.Owner)
	if conflict {
		return &ConflictError{New: h, Old: old}
	}
	return nil
}

// Release drops the block with exactly this CIDR. Its addresses are free again, unless a
// reservation or another block contains them. It returns false if no such block is held.
func (s *Space) Release(cidr netip.Prefix) bool {
	f, p, ok := blockPrefix(cidr)
	return ok && s.tries[f].release(p)
}

// Owner returns the owner of the block with exactly this CIDR, and whether it is
// held.
func (s *Space) Owner(cidr netip.Prefix) (Owner, bool) {
	f, p, ok := blockPrefix(cidr)
	if !ok {
		return Owner{}, false
	}
	if o := s.tries[f].ownerOf(p); o != nil {
		return *o, true
	}
	return Owner{}, false
}

// Overlapping returns the blocks that share addresses with cidr, except the one with exactly this
// CIDR, sorted by address, then length. Without such blocks it returns nil and allocates no memory.
// It visits everything held or reserved inside cidr. Bits beyond the length of cidr are ignored; an
// invalid one overlaps no block.
func (s *Space) Overlapping(cidr netip.Prefix) []Held {
	if !cidr.IsValid() {
		return nil
	}
	f, p := split(cidr)
	p = p.masked()
	t := &s.tries[f]
	var found []Held
	t.overlaps(p, byBlock, func(n *node, place uint8) bool {
		if n.at(place) != p {
			found = append(found, t.held(f, n, place))
		}
		return true
	})
	return found
}

// Reserve keeps the addresses of cidr, of any length, from being claimed. A partly reserved
// block is not claimed either. Reservations may overlap blocks and each other, and are counted:
// each needs its own Unreserve. Bits beyond the length of cidr are ignored, and so is an
// invalid one.
func (s *Space) Reserve(cidr netip.Prefix) {
	if !cidr.IsValid() {
		return
	}
	f, p := split(cidr)
	s.tries[f].reserve(p.masked())
}

// Unreserve undoes one Reserve of exactly this cidr. It returns false, and changes no reservation,
// if cidr is not reserved.
func (s *Space) Unreserve(cidr netip.Prefix) bool {
	if !cidr.IsValid() {
		return false
	}
	f, p := split(cidr)
	return s.tries[f].unreserve(p.masked())
}

// Reservations returns the number of Reserve calls not undone that share addresses with cidr. It
// visits everything held or reserved inside cidr. Bits beyond the length of cidr are ignored, and
// an invalid one shares none.
func (s *Space) Reservations(cidr netip.Prefix) int {
	if !cidr.IsValid() {
		return 0
	}
	f, p := split(cidr)
	t := &s.tries[f]
	sum := 0
	t.overlaps(p.masked(), byReservation, func(n *node, place uint8) bool {
		sum += int(t.reserved[n.at(place)])
		return true
	})
	return sum
}

// blockPrefix converts a CIDR, and reports whether it can be a block: it is valid and has no bits set
// beyond its length.
func blockPrefix(cidr netip.Prefix) (f Family, p prefix, ok bool) {
	if !cidr.IsValid() {
		return 0, prefix{}, false
	}
	f, p = split(cidr)
	return f, p, p == p.masked()
}

// held returns the block at a held place of n.
func (t *trie) held(f Family, n *node, place uint8) Held {
	return Held{CIDR: n.at(place).cidr(f), Owner: *t.owners.at(*t.ownerAt(n, place))}
}

// firstOverlap returns the first block that shares addresses with p.
func (t *trie) firstOverlap(f Family, p prefix) (first Held, found bool) {
	t.overlaps(p, byBlock, func(n *node, place uint8) bool {
		first = t.held(f, n, place)
		found = true
		return false
	})
	return first, found
}
