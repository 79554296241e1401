package ipalloc

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// oracle is a Space of 256 addresses per family, implemented as plainly as possible: it visits
// every address every time.
type oracle struct {
	blocks   map[netip.Prefix]Owner
	reserved map[netip.Prefix]int
	ready    bool
}

// universe is the range of an oracle's 256 addresses.
var universe = [2]netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8::a00/120")}

// span returns the addresses of the universe in p: the first one, and their number.
func span(p netip.Prefix) (f Family, from, size int) {
	f = FamilyOf(p.Addr())
	if !universe[f].Overlaps(p) {
		return f, 0, 0
	}
	if p.Bits() <= universe[f].Bits() {
		return f, 0, 256
	}
	last := p.Masked().Addr().AsSlice()
	return f, int(last[len(last)-1]), 1 << (f.Bits() - p.Bits())
}

// cidrAt is the inverse of span.
func cidrAt(f Family, from, bits int) netip.Prefix {
	b := universe[f].Addr().AsSlice()
	b[len(b)-1] = byte(from)
	addr, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(addr, bits)
}

func (o *oracle) taken(f Family) (addrs [256]bool) {
	fill := func(p netip.Prefix) {
		if g, from, size := span(p); g == f {
			for i := range size {
				addrs[from+i] = true
			}
		}
	}
	for p := range o.blocks {
		fill(p)
	}
	for p := range o.reserved {
		fill(p)
	}
	return addrs
}

func (o *oracle) free(f Family, from, size int) bool {
	taken := o.taken(f)
	return !slices.Contains(taken[from:from+size], true)
}

// candidates returns every block of the cut, free or not, lowest first.
func (o *oracle) candidates(c Cut) []netip.Prefix {
	var all []netip.Prefix
	for _, f := range Families() {
		if c.BlockBits < universe[f].Bits() || c.BlockBits > f.Bits() {
			continue
		}
		for from := 0; from < 256; from += 1 << (f.Bits() - c.BlockBits) {
			block := cidrAt(f, from, c.BlockBits)
			if slices.ContainsFunc(c.Ranges, func(r netip.Prefix) bool {
				return r.Bits() <= block.Bits() && r.Contains(block.Addr())
			}) {
				all = append(all, block)
			}
		}
	}
	return all
}

func (o *oracle) freeBlocks(c Cut) []netip.Prefix {
	var free []netip.Prefix
	for _, b := range o.candidates(c) {
		if f, from, size := span(b); o.free(f, from, size) {
			free = append(free, b)
		}
	}
	return free
}

func (o *oracle) claim(c Cut, owner Owner, near []netip.Prefix) (netip.Prefix, error) {
	if !o.ready {
		return netip.Prefix{}, ErrNotReady
	}
	free := o.freeBlocks(c)
	if len(free) == 0 {
		return netip.Prefix{}, ErrExhausted
	}
	pick := free[0]
	for _, b := range free {
		f, from, size := span(b)
		if size < 256 && slices.Contains(near, cidrAt(f, from^size, c.BlockBits)) {
			pick = b
			break
		}
	}
	o.blocks[pick] = owner
	return pick, nil
}

func (o *oracle) overlapping(p netip.Prefix) []Held {
	var found []Held
	for _, h := range o.sorted() {
		if h.CIDR != p && h.CIDR.Overlaps(p) {
			found = append(found, h)
		}
	}
	return found
}

func (o *oracle) sorted() []Held {
	var all []Held
	for p, owner := range o.blocks {
		all = append(all, Held{p, owner})
	}
	slices.SortFunc(all, func(a, b Held) int {
		return cmp.Or(a.CIDR.Addr().Compare(b.CIDR.Addr()), a.CIDR.Bits()-b.CIDR.Bits())
	})
	return all
}

func (o *oracle) restore(h Held) error {
	old, ok := o.blocks[h.CIDR]
	if ok && (old.Pool != h.Owner.Pool || old.Node != h.Owner.Node) {
		return &ConflictError{New: h, Old: Held{h.CIDR, old}}
	}
	over := o.overlapping(h.CIDR)
	o.blocks[h.CIDR] = h.Owner
	if !ok && len(over) > 0 {
		return &ConflictError{New: h, Old: over[0]}
	}
	return nil
}

func (o *oracle) release(p netip.Prefix) bool {
	_, ok := o.blocks[p]
	delete(o.blocks, p)
	return ok
}

func (o *oracle) unreserve(p netip.Prefix) bool {
	if o.reserved[p] == 0 {
		return false
	}
	if o.reserved[p]--; o.reserved[p] == 0 {
		delete(o.reserved, p)
	}
	return true
}

// tape is a run of the model as bytes; past its end it reads as zeros.
type tape []byte

func (t *tape) next() byte {
	if len(*t) == 0 {
		return 0
	}
	b := (*t)[0]
	*t = (*t)[1:]
	return b
}

// pick returns a number from lo to hi.
func (t *tape) pick(lo, hi int) int { return lo + int(t.next())%(hi-lo+1) }

func (t *tape) family() Family { return Families()[t.pick(0, 1)] }

// prefix returns a masked prefix that overlaps the universe; most lie inside it.
func (t *tape) prefix(f Family) netip.Prefix {
	bits := universe[f].Bits() + t.pick(-2, 8)
	p := cidrAt(f, int(t.next()), bits)
	return p.Masked()
}

func (t *tape) owner() Owner {
	return Owner{
		Pool:  []string{"p", "q"}[t.pick(0, 1)],
		Node:  []string{"a", "b", "c"}[t.pick(0, 2)],
		Phase: Phase(t.pick(0, 2)),
	}
}

// cut returns up to four ranges, sometimes of both families, and a block size that mostly fits
// the first family.
func (t *tape) cut(f Family) Cut {
	c := Cut{BlockBits: universe[f].Bits() + t.pick(0, 8)}
	for range t.pick(0, 4) {
		g := f
		if t.pick(0, 15) == 0 {
			g = IPv4 + IPv6 - f
		}
		bits := universe[g].Bits() + t.pick(0, 6)
		c.Ranges = append(c.Ranges, cidrAt(g, int(t.next()), bits))
	}
	return c
}

// near returns the blocks of a node, in an order that the tape chooses.
func (t *tape) near(o *oracle, node string) []netip.Prefix {
	var ps []netip.Prefix
	for _, h := range o.sorted() {
		if h.Owner.Node == node {
			ps = append(ps, h.CIDR)
		}
	}
	if t.pick(0, 1) == 1 {
		slices.Reverse(ps)
	}
	return ps
}

// run plays a tape on a Space and on its oracle, and fails at the first difference.
func run(t *testing.T, script tape) {
	s, o := NewSpace(), &oracle{blocks: map[netip.Prefix]Owner{}, reserved: map[netip.Prefix]int{}}
	for step := 0; len(script) > 0; step++ {
		what := play(t, &script, s, o)
		if err := s.check(); err != nil {
			t.Fatalf("step %d, %s: %v", step, what, err)
		}
		compare(t, &script, s, o)
		if t.Failed() {
			t.Fatalf("step %d, %s", step, what)
		}
	}
}

// play performs the next operation on both, and returns its name.
func play(t *testing.T, script *tape, s *Space, o *oracle) string {
	f := script.family()
	switch script.pick(0, 9) {
	case 0, 1, 2, 3:
		playClaim(t, script, f, s, o)
		return "claim"
	case 4:
		h := Held{script.prefix(f), script.owner()}
		if diff := gocmp.Diff(o.restore(h), s.Restore(h), byValue); diff != "" {
			t.Errorf("Restore(%v): %s", h, diff)
		}
		return "restore"
	case 5, 6:
		p := script.prefix(f)
		if all := o.sorted(); len(all) > 0 && script.pick(0, 3) > 0 {
			p = all[script.pick(0, len(all)-1)].CIDR
		}
		if got, want := s.Release(p), o.release(p); got != want {
			t.Errorf("Release(%s) = %v", p, got)
		}
		return "release"
	case 7:
		p := script.prefix(f)
		s.Reserve(p)
		o.reserved[p]++
		return "reserve"
	case 8:
		p := script.prefix(f)
		if all := slices.SortedFunc(maps.Keys(o.reserved), netip.Prefix.Compare); len(all) > 0 && script.pick(0, 7) > 0 {
			p = all[script.pick(0, len(all)-1)]
		}
		if got, want := s.Unreserve(p), o.unreserve(p); got != want {
			t.Errorf("Unreserve(%s) = %v", p, got)
		}
		return "unreserve"
	default:
		s.SetReady()
		o.ready = true
		return "ready"
	}
}

func playClaim(t *testing.T, script *tape, f Family, s *Space, o *oracle) {
	c, owner := script.cut(f), script.owner()
	near := script.near(o, owner.Node)
	got, err := s.Claim(c, owner, near)
	want, wantErr := o.claim(c, owner, near)
	if got != want || !errors.Is(err, wantErr) {
		t.Errorf("Claim(%v, %v) = %s, %v; want %s, %v", c, near, got, err, want, wantErr)
	}
}

// compare compares every answer of s with o's.
func compare(t *testing.T, script *tape, s *Space, o *oracle) {
	f := script.family()
	c, p := script.cut(f), script.prefix(f)
	if got, want := s.Free(c), uint64(len(o.freeBlocks(c))); got != want {
		t.Errorf("Free(%v) = %d, want %d", c, got, want)
	}
	if got, want := c.Total(), uint64(len(o.candidates(c))); got != want {
		t.Errorf("Total(%v) = %d, want %d", c, got, want)
	}
	if diff := gocmp.Diff(o.overlapping(p), s.Overlapping(p), byValue); diff != "" {
		t.Errorf("Overlapping(%s): %s", p, diff)
	}
	reserved := 0
	for r, n := range o.reserved {
		if r.Overlaps(p) {
			reserved += n
		}
	}
	if got := s.Reservations(p); got != reserved {
		t.Errorf("Reservations(%s) = %d, want %d", p, got, reserved)
	}
	got, ok := s.Owner(p)
	if want, wantOK := o.blocks[p]; got != want || ok != wantOK {
		t.Errorf("Owner(%s) = %v, %v", p, got, ok)
	}
	if !slices.Equal(s.blocks(), o.sorted()) {
		t.Errorf("blocks %v, want %v", s.blocks(), o.sorted())
	}
}

// randomTape returns a run of about n/20 steps.
func randomTape(seed uint64, n int) tape {
	rnd := rand.New(rand.NewPCG(seed, 0))
	script := make(tape, n)
	for i := range script {
		script[i] = byte(rnd.Uint32())
	}
	return script
}

func TestModel(t *testing.T) {
	for seed := range uint64(50) {
		run(t, randomTape(seed, 4000))
	}
}

// FuzzSpace compares a Space with 256 booleans.
func FuzzSpace(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 9, 0, 3, 1, 1, 0, 0}) // ready, then claims from all of the universe
	for seed := range uint64(8) {
		f.Add([]byte(randomTape(seed, 400)))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		run(t, script[:min(len(script), 2000)])
	})
}
