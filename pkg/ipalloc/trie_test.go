package ipalloc

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// check returns the fault of the internal state of s, or nil.
func (s *Space) check() error {
	for f := range s.tries {
		if err := s.tries[f].check(Family(f)); err != nil {
			return fmt.Errorf("%s: %w", Family(f), err)
		}
	}
	return nil
}

// used are the indexes of the arenas that were reached.
type used struct{ nodes, slots, several, owners map[uint32]bool }

// check checks the invariants of t: every node has a purpose, lies in its slot, and knows its free
// space; no index of an arena is lost or used twice; the reservations counted are in nodes.
func (t *trie) check(f Family) error {
	u := used{map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}}
	reserved := map[prefix]bool{}
	if t.root.prefix() != (prefix{}) {
		return fmt.Errorf("the root is %v", t.root.prefix())
	}
	if err := t.checkNode(&t.root, f, u, reserved); err != nil {
		return err
	}
	for p, n := range t.reserved {
		if n == 0 || !reserved[p] {
			return fmt.Errorf("%s is reserved %d times, and %v", p.cidr(f), n, reserved[p])
		}
	}
	if len(reserved) != len(t.reserved) {
		return fmt.Errorf("%d prefixes are reserved, %d counted", len(reserved), len(t.reserved))
	}
	return errors.Join(checkArena("nodes", &t.nodes, u.nodes), checkArena("slots", &t.slots, u.slots),
		checkArena("several owners", &t.several, u.several), checkArena("owners", &t.owners, u.owners))
}

func (t *trie) checkNode(n *node, f Family, u used, reserved map[prefix]bool) error {
	p := n.prefix()
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("node %s: %s", p.cidr(f), fmt.Sprintf(format, args...))
	}
	below := 0
	for slot := slotCount; slot < 2*slotCount; slot++ {
		if t.child(n, uint8(slot)) != nil {
			below++
		}
	}
	switch {
	case p.bits%stride != 0 || p != p.masked() || int(p.bits) > f.Bits():
		return wrong("no prefix of a node")
	case n != &t.root && n.taken() == 0 && below < 2:
		return wrong("no purpose")
	case (n.slots != 0) != (below > 0) || u.slots[n.slots]:
		return wrong("place %d of slots, %d of them with a node", n.slots, below)
	}
	if err := t.checkPlaces(n, f, u, reserved); err != nil {
		return err
	}
	if below == 0 {
		return nil
	}
	u.slots[n.slots] = true
	for s := range uint8(slotCount) {
		id, known := t.slots.at(n.slots).nodes[s], t.slots.at(n.slots).free[s]
		c := t.child(n, slotCount+s)
		switch {
		case c == nil && (id != 0 || known != 0):
			return wrong("empty slot %d has %d, %d", s, id, known)
		case c == nil:
			continue
		case u.nodes[id] || c.bits <= p.bits || !n.at(slotCount+s).contains(c.prefix()):
			return wrong("%s is in slot %d", c.prefix().cidr(f), s)
		case known != t.freeIn(c, slotCount+s, n):
			return wrong("slot %d has a free chunk of %d, known as %d", s, t.freeIn(c, slotCount+s, n), known)
		}
		u.nodes[id] = true
		if err := t.checkNode(c, f, u, reserved); err != nil {
			return err
		}
	}
	return nil
}

// checkPlaces compares n's records about its places with the prefixes that they stand for.
func (t *trie) checkPlaces(n *node, f Family, u used, reserved map[prefix]bool) error {
	if (n.held|n.reserved|n.blocked)&1 != 0 {
		return fmt.Errorf("place 0 is in use: %+v", n)
	}
	if several := bits.OnesCount64(n.held) > 1; several && u.several[n.owner] {
		return fmt.Errorf("several owners of %s are those of others", n.prefix().cidr(f))
	} else if several {
		u.several[n.owner] = true
	} else if n.held == 0 && n.owner != 0 {
		return fmt.Errorf("%s has an owner and nothing held", n.prefix().cidr(f))
	}
	var blocked uint64
	n.findBlocked(1, false, &blocked)
	if blocked != n.blocked {
		return fmt.Errorf("%s: blocked are %b, want %b", n.prefix().cidr(f), n.blocked, blocked)
	}
	for i := uint8(1); i < slotCount; i++ {
		p := n.at(i)
		if int(p.bits) > f.Bits() {
			break
		}
		if n.place(p) != i {
			return fmt.Errorf("%s is place %d, not %d", p.cidr(f), n.place(p), i)
		}
		if n.reserved>>i&1 != 0 {
			reserved[p] = true
		}
		if n.held>>i&1 != 0 {
			owner := *t.ownerAt(n, i)
			if owner == 0 || u.owners[owner] {
				return fmt.Errorf("%s has no owner of its own", p.cidr(f))
			}
			u.owners[owner] = true
		} else if bits.OnesCount64(n.held) > 1 && t.several.at(n.owner)[i] != 0 {
			return fmt.Errorf("%s is not held and has an owner", p.cidr(f))
		}
	}
	if free := t.freeAt(n, 1); free != n.free {
		return fmt.Errorf("%s: largest free chunk %d, want %d", n.prefix().cidr(f), n.free, free)
	}
	return nil
}

// findBlocked adds the blocked places in a place to blocked, and reports whether it contains
// anything itself. covered: a larger place may be taken.
func (n *node) findBlocked(place uint8, covered bool, blocked *uint64) bool {
	if place >= slotCount {
		return n.below>>(place-slotCount)&1 != 0
	}
	taken := n.taken()>>place&1 != 0
	lower := n.findBlocked(2*place, covered || taken, blocked)
	upper := n.findBlocked(2*place+1, covered || taken, blocked)
	if covered || taken || lower || upper {
		*blocked |= 1 << place
	}
	return taken || lower || upper
}

// freeAt finds the length of the largest free chunk in a place by halving it.
func (t *trie) freeAt(n *node, place uint8) uint8 {
	if place >= slotCount {
		return t.freeIn(t.child(n, place), place, n)
	}
	if n.taken()>>place&1 != 0 {
		return nothing
	}
	lower, upper, halves := t.freeAt(n, 2*place), t.freeAt(n, 2*place+1), n.at(place).bits+1
	if lower == halves && upper == halves {
		return halves - 1
	}
	return min(lower, upper)
}

// freeIn is freeAt for a slot of n; c is the topmost node in it.
func (t *trie) freeIn(c *node, slot uint8, n *node) uint8 {
	in := n.at(slot).bits
	switch {
	case c == nil:
		return in
	case c.bits > in:
		return in + 1 // the half without c
	}
	return c.free // checked with c
}

func checkArena[T comparable](name string, a *arena[T], used map[uint32]bool) error {
	seen := map[uint32]bool{}
	var zero T
	for _, i := range a.free {
		if used[i] || seen[i] || i == 0 || *a.at(i) != zero {
			return fmt.Errorf("%s: place %d is free, and is not", name, i)
		}
		seen[i] = true
	}
	if len(used)+len(seen) != int(a.last) {
		return fmt.Errorf("%s: %d used and %d free places of %d", name, len(used), len(seen), a.last)
	}
	return nil
}

// blocks returns everything held, sorted.
func (s *Space) blocks() []Held {
	var all []Held
	for f := range s.tries {
		t := &s.tries[f]
		t.overlaps(prefix{}, byBlock, func(n *node, place uint8) bool {
			all = append(all, t.held(Family(f), n, place))
			return true
		})
	}
	return all
}

func TestPrefixThereAndBack(t *testing.T) {
	tests := map[string]struct{ in, buddy, lower, upper string }{
		"IPv4":                  {in: "10.1.2.64/26", buddy: "10.1.2.0/26", lower: "10.1.2.64/27", upper: "10.1.2.96/27"},
		"IPv4, half of it all":  {in: "0.0.0.0/1", buddy: "128.0.0.0/1", lower: "0.0.0.0/2", upper: "64.0.0.0/2"},
		"IPv6, upper word":      {in: "2001:db8::/48", buddy: "2001:db8:1::/48", lower: "2001:db8::/49", upper: "2001:db8:0:8000::/49"},
		"IPv6, words meet":      {in: "2001:db8::/64", buddy: "2001:db8:0:1::/64", lower: "2001:db8::/65", upper: "2001:db8:0:0:8000::/65"},
		"IPv6, word's end":      {in: "2001:db8::/63", buddy: "2001:db8:0:2::/63", lower: "2001:db8::/64", upper: "2001:db8:0:1::/64"},
		"IPv6, word's start":    {in: "2001:db8::/65", buddy: "2001:db8:0:0:8000::/65", lower: "2001:db8::/66", upper: "2001:db8:0:0:4000::/66"},
		"IPv6, lower word":      {in: "2001:db8::40/122", buddy: "2001:db8::/122", lower: "2001:db8::40/123", upper: "2001:db8::60/123"},
		"IPv4 mapped into IPv6": {in: "::ffff:10.0.0.0/120", buddy: "::ffff:10.0.1.0/120", lower: "::ffff:10.0.0.0/121", upper: "::ffff:10.0.0.128/121"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := mappedCIDR(tc.in)
			f, p := split(in)
			for what, got := range map[string][2]netip.Prefix{
				"itself": {p.cidr(f), in},
				"buddy":  {p.buddy().cidr(f), mappedCIDR(tc.buddy)},
				"lower":  {p.extend(1, 0).cidr(f), mappedCIDR(tc.lower)},
				"upper":  {p.extend(1, 1).cidr(f), mappedCIDR(tc.upper)},
				"up":     {p.extend(1, 1).shorten(p.bits).cidr(f), in},
			} {
				if got[0] != got[1] {
					t.Errorf("%s: %s, want %s", what, got[0], got[1])
				}
			}
		})
	}
}

// mappedCIDR parses a CIDR, including, unlike netip.ParsePrefix, an IPv4-mapped one.
func mappedCIDR(s string) netip.Prefix {
	addr, length, _ := strings.Cut(s, "/")
	bits, err := strconv.Atoi(length)
	if err != nil {
		panic("no length in " + s)
	}
	return netip.PrefixFrom(netip.MustParseAddr(addr), bits)
}
