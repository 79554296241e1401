package ipalloc

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// check returns what is wrong with the inner state of s, or nil.
func (s *Space) check() error {
	for f := range s.tries {
		if err := s.tries[f].check(Family(f)); err != nil {
			return fmt.Errorf("%s: %w", Family(f), err)
		}
	}
	return nil
}

// check holds t to its invariants: every node has a purpose, lies in the right
// half of its parent, and has the right summary; no place of an arena is lost
// or used twice; the path is a chain of nodes from the root.
func (t *trie) check(f Family) error {
	pairs, owners := map[uint32]bool{}, map[uint32]bool{}
	if !t.root.empty() {
		if _, err := t.checkNode(&t.root, f, pairs, owners); err != nil {
			return err
		}
	} else if t.root != (node{}) {
		return fmt.Errorf("the empty root is %+v", t.root)
	}
	if err := checkArena(&t.pairs, pairs); err != nil {
		return fmt.Errorf("pairs: %w", err)
	}
	if err := checkArena(&t.owners, owners); err != nil {
		return fmt.Errorf("owners: %w", err)
	}
	return t.checkPath()
}

func (t *trie) checkPath() error {
	for i, n := range t.path {
		switch {
		case n.empty():
			return fmt.Errorf("the path has an empty place at %d", i)
		case i == 0 && n != &t.root:
			return fmt.Errorf("the path starts at %v, not at the root", n.prefix())
		case i > 0 && n != t.half(t.path[i-1], 0) && n != t.half(t.path[i-1], 1):
			return fmt.Errorf("the path jumps to %v", n.prefix())
		}
	}
	return nil
}

// checkNode computes the summary of n from scratch, bit by bit.
func (t *trie) checkNode(n *node, f Family, pairs, owners map[uint32]bool) (free uint8, err error) {
	p := n.prefix()
	switch {
	case n.halves != 0 && pairs[n.halves]:
		return 0, fmt.Errorf("the halves of %s are reached twice", p.cidr(f))
	case p.cidr(f) != p.cidr(f).Masked() || int(p.bits) > f.Bits():
		return 0, fmt.Errorf("%s is not a prefix", p.cidr(f))
	case !n.taken() && (t.half(n, 0).empty() || t.half(n, 1).empty()):
		return 0, fmt.Errorf("%s has no purpose", p.cidr(f))
	case n.owner != 0 && owners[n.owner]:
		return 0, fmt.Errorf("%s shares its owner's place", p.cidr(f))
	}
	if n.halves != 0 {
		pairs[n.halves] = true
	}
	if n.owner != 0 {
		owners[n.owner] = true
	}
	free = nothing
	for side := range uint8(2) {
		got, err := t.checkChild(p, side, t.half(n, side), f, pairs, owners)
		if err != nil {
			return 0, err
		}
		free = min(free, got)
	}
	if n.taken() {
		free = nothing
	}
	if n.free != free {
		return 0, fmt.Errorf("%s: summary %d, want %d", p.cidr(f), n.free, free)
	}
	return free, nil
}

func (t *trie) checkChild(p prefix, side uint8, c *node, f Family, pairs, owners map[uint32]bool) (uint8, error) {
	if c.empty() {
		if c != nil && *c != (node{}) {
			return 0, fmt.Errorf("the empty half %d of %s is %+v", side, p.cidr(f), *c)
		}
		return p.bits + 1, nil
	}
	child := c.prefix()
	if !p.half(side).contains(child) {
		return 0, fmt.Errorf("%s is not in half %d of %s", child.cidr(f), side, p.cidr(f))
	}
	free, err := t.checkNode(c, f, pairs, owners)
	for l := child.bits; l > p.bits+1; l-- {
		free = min(free, l) // the half beside the way from p down to the child
	}
	return free, err
}

func checkArena[T comparable](a *arena[T], used map[uint32]bool) error {
	seen := map[uint32]bool{}
	var zero T
	for _, i := range a.free {
		if used[i] || seen[i] || i == 0 || *a.at(i) != zero {
			return fmt.Errorf("place %d is free, and is not", i)
		}
		seen[i] = true
	}
	if len(used)+len(seen) != int(a.last) {
		return fmt.Errorf("%d used and %d free places of %d", len(used), len(seen), a.last)
	}
	return nil
}

// blocks returns everything held, sorted.
func (s *Space) blocks() []Held {
	var all []Held
	for f := range s.tries {
		t := &s.tries[f]
		t.overlaps(prefix{}, func(n *node) bool {
			all = append(all, t.held(Family(f), n))
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
				"lower":  {p.half(0).cidr(f), mappedCIDR(tc.lower)},
				"upper":  {p.half(1).cidr(f), mappedCIDR(tc.upper)},
				"up":     {p.half(1).shorten(p.bits).cidr(f), in},
			} {
				if got[0] != got[1] {
					t.Errorf("%s: %s, want %s", what, got[0], got[1])
				}
			}
		})
	}
}

// mappedCIDR parses a CIDR; unlike netip.ParsePrefix also an IPv4-mapped one.
func mappedCIDR(s string) netip.Prefix {
	addr, length, _ := strings.Cut(s, "/")
	bits, err := strconv.Atoi(length)
	if err != nil {
		panic("no length in " + s)
	}
	return netip.PrefixFrom(netip.MustParseAddr(addr), bits)
}
