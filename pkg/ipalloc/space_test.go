package ipalloc

import (
	"errors"
	"math"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var byValue = cmpopts.EquateComparable(netip.Prefix{})

func cidrs(ss ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range ss {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

func held(cidr, node string) Held {
	return Held{CIDR: netip.MustParsePrefix(cidr), Owner: Owner{Pool: "p", Node: node}}
}

// spaceOf returns a ready Space with these blocks, all of node "n", and these reservations.
// Conflicts do not fail the test: some tests need them.
func spaceOf(t *testing.T, blocks, reserved []string) *Space {
	t.Helper()
	s := NewSpace()
	for _, b := range blocks {
		var conflict *ConflictError
		if err := s.Restore(held(b, "n")); err != nil && !errors.As(err, &conflict) {
			t.Fatal(err)
		}
	}
	for _, r := range reserved {
		s.Reserve(netip.MustParsePrefix(r))
	}
	s.SetReady()
	return s
}

func TestClaim(t *testing.T) {
	tests := map[string]struct {
		blocks, reserved, ranges, near []string
		bits                           int
		want                           string // "": exhausted
	}{
		"empty space":                     {ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.0/27"},
		"the range is one block":          {ranges: []string{"10.0.0.32/27"}, bits: 27, want: "10.0.0.32/27"},
		"the range is one block, held":    {blocks: []string{"10.0.0.32/27"}, ranges: []string{"10.0.0.32/27"}, bits: 27},
		"lowest hole first":               {blocks: []string{"10.0.0.0/27", "10.0.0.64/27"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.32/27"},
		"a hole too small is passed over": {blocks: []string{"10.0.0.0/28", "10.0.0.32/28"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.64/27"},
		"full":                            {blocks: []string{"10.0.0.0/25", "10.0.0.128/25"}, ranges: []string{"10.0.0.0/24"}, bits: 27},
		"inside an adopted block":         {blocks: []string{"10.0.0.0/24"}, ranges: []string{"10.0.0.64/26", "10.0.1.0/26"}, bits: 27, want: "10.0.1.0/27"},
		"lowest address, not first range": {ranges: []string{"10.9.0.0/24", "10.1.0.0/24"}, bits: 27, want: "10.1.0.0/27"},
		"next range when one is full":     {blocks: []string{"10.1.0.0/26"}, ranges: []string{"10.9.0.0/26", "10.1.0.0/26"}, bits: 27, want: "10.9.0.0/27"},
		"ranges overlap":                  {blocks: []string{"10.0.0.0/27"}, ranges: []string{"10.0.0.0/24", "10.0.0.0/27"}, bits: 27, want: "10.0.0.32/27"},
		"range too small":                 {ranges: []string{"10.0.0.0/28", "10.0.0.16/28"}, bits: 27},
		"range with bits beyond length":   {ranges: []string{"10.0.0.77/24"}, bits: 27, want: "10.0.0.0/27"},
		"block longer than an address":    {ranges: []string{"10.0.0.0/24"}, bits: 33},
		"no ranges":                       {bits: 27},
		"one reserved address spoils":     {reserved: []string{"10.0.0.3/32"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.32/27"},
		"reserved around the range":       {reserved: []string{"10.0.0.0/8"}, ranges: []string{"10.0.0.0/24"}, bits: 27},
		"everything reserved":             {reserved: []string{"0.0.0.0/0"}, ranges: []string{"10.0.0.0/24"}, bits: 27},
		"the whole of a /8":               {ranges: []string{"10.0.0.0/8"}, bits: 27, want: "10.0.0.0/27"},
		"all of IPv4":                     {ranges: []string{"0.0.0.0/0"}, bits: 0, want: "0.0.0.0/0"},
		"all of IPv4, one address held":   {blocks: []string{"0.0.0.0/32"}, ranges: []string{"0.0.0.0/0"}, bits: 0},
		"lowest half held by one address": {blocks: []string{"0.0.0.0/32"}, ranges: []string{"0.0.0.0/0"}, bits: 1, want: "128.0.0.0/1"},
		"IPv6":                            {blocks: []string{"2001:db8::/122"}, ranges: []string{"2001:db8::/48"}, bits: 122, want: "2001:db8::40/122"},
		"IPv6, hole between far blocks":   {blocks: []string{"2001:db8::/49", "2001:db8:0:8000::/122"}, ranges: []string{"2001:db8::/48"}, bits: 122, want: "2001:db8:0:8000::40/122"},
		"families do not touch":           {blocks: []string{"::/0"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.0/27"},
		"buddy before the lowest":         {blocks: []string{"10.0.0.128/27"}, near: []string{"10.0.0.128/27"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.160/27"},
		"buddy on the lower side":         {blocks: []string{"10.0.0.160/27"}, near: []string{"10.0.0.160/27"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.128/27"},
		"lowest of two buddies":           {blocks: []string{"10.0.0.128/27", "10.0.0.64/27"}, near: []string{"10.0.0.128/27", "10.0.0.64/27"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.96/27"},
		"buddy held":                      {blocks: []string{"10.0.0.128/27", "10.0.0.160/27"}, near: []string{"10.0.0.128/27"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.0/27"},
		"buddy held in part":              {blocks: []string{"10.0.0.128/27", "10.0.0.190/32"}, near: []string{"10.0.0.128/27"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.0/27"},
		"buddy outside the ranges":        {blocks: []string{"10.0.0.32/27"}, near: []string{"10.0.0.32/27"}, ranges: []string{"10.0.0.32/27", "10.0.1.0/24"}, bits: 27, want: "10.0.1.0/27"},
		"buddy across two ranges":         {blocks: []string{"10.0.0.32/27"}, near: []string{"10.0.0.32/27"}, ranges: []string{"10.0.0.0/28", "10.0.0.16/28", "10.0.1.0/24"}, bits: 27, want: "10.0.1.0/27"},
		"near blocks of another size":     {blocks: []string{"10.0.0.128/26"}, near: []string{"10.0.0.128/26"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.0/27"},
		"near block of the other family":  {blocks: []string{"a00::/27"}, near: []string{"a00::/27"}, ranges: []string{"10.0.0.0/24"}, bits: 27, want: "10.0.0.0/27"},
		"near is all of IPv4":             {blocks: []string{"0.0.0.0/0"}, near: []string{"0.0.0.0/0"}, ranges: []string{"0.0.0.0/0"}, bits: 0},
		"ranges of both families":         {blocks: []string{"10.0.0.0/24"}, ranges: []string{"2001:db8::/20", "10.0.0.0/24"}, bits: 27, want: "2001::/27"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := spaceOf(t, tc.blocks, tc.reserved)
			c := Cut{Ranges: cidrs(tc.ranges...), BlockBits: tc.bits}
			free := s.Free(c)
			got, err := s.Claim(c, Owner{Pool: "p", Node: "n"}, cidrs(tc.near...))
			if tc.want == "" {
				if !errors.Is(err, ErrExhausted) || free != 0 {
					t.Fatalf("claimed %s, %v, with %d free; want ErrExhausted, 0", got, err, free)
				}
				return
			}
			if err != nil || got != netip.MustParsePrefix(tc.want) {
				t.Fatalf("claimed %s, %v; want %s", got, err, tc.want)
			}
			if now := s.Free(c); free != math.MaxUint64 && now != free-1 {
				t.Errorf("%d free after the claim, %d before", now, free)
			}
			if o, ok := s.Owner(got); !ok || o.Node != "n" {
				t.Errorf("owner %v, %v", o, ok)
			}
			if err := s.check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestClaimNotReady(t *testing.T) {
	var s Space
	c := Cut{Ranges: cidrs("10.0.0.0/24"), BlockBits: 27}
	if _, err := s.Claim(c, Owner{}, nil); !errors.Is(err, ErrNotReady) || s.Ready() {
		t.Fatalf("before SetReady: %v, ready %v", err, s.Ready())
	}
	s.SetReady()
	if _, err := s.Claim(c, Owner{}, nil); err != nil || !s.Ready() {
		t.Fatalf("after SetReady: %v, ready %v", err, s.Ready())
	}
}

func TestRestoreConflicts(t *testing.T) {
	tests := map[string]struct {
		blocks []string // of node "n"
		add    Held
		want   string // CIDR of the old block; "": no conflict
		after  []string
	}{
		"apart":                 {blocks: []string{"10.0.0.0/27"}, add: held("10.0.0.32/27", "m"), after: []string{"10.0.0.0/27 n", "10.0.0.32/27 m"}},
		"same again":            {blocks: []string{"10.0.0.0/27"}, add: held("10.0.0.0/27", "n"), after: []string{"10.0.0.0/27 n"}},
		"same, other node":      {blocks: []string{"10.0.0.0/27"}, add: held("10.0.0.0/27", "m"), want: "10.0.0.0/27", after: []string{"10.0.0.0/27 n"}},
		"inside an adopted /24": {blocks: []string{"10.0.0.0/24"}, add: held("10.0.0.32/27", "m"), want: "10.0.0.0/24", after: []string{"10.0.0.0/24 n", "10.0.0.32/27 m"}},
		"around two":            {blocks: []string{"10.0.0.64/27", "10.0.0.32/27"}, add: held("10.0.0.0/24", "m"), want: "10.0.0.32/27", after: []string{"10.0.0.0/24 m", "10.0.0.32/27 n", "10.0.0.64/27 n"}},
		"between two":           {blocks: []string{"10.0.0.0/24", "10.0.0.0/28"}, add: held("10.0.0.0/27", "m"), want: "10.0.0.0/24", after: []string{"10.0.0.0/24 n", "10.0.0.0/27 m", "10.0.0.0/28 n"}},
		"the other family":      {blocks: []string{"a00::/27"}, add: held("10.0.0.0/27", "m"), after: []string{"10.0.0.0/27 m", "a00::/27 n"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := spaceOf(t, tc.blocks, nil)
			err := s.Restore(tc.add)
			var conflict *ConflictError
			switch {
			case tc.want == "" && err != nil:
				t.Fatal(err)
			case tc.want != "" && !errors.As(err, &conflict):
				t.Fatalf("got %v, want a conflict with %s", err, tc.want)
			case tc.want != "":
				if diff := cmp.Diff(&ConflictError{New: tc.add, Old: held(tc.want, "n")}, conflict, byValue); diff != "" {
					t.Error(diff)
				}
			}
			var after []string
			for _, h := range s.blocks() {
				after = append(after, h.CIDR.String()+" "+h.Owner.Node)
			}
			if diff := cmp.Diff(tc.after, after); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRestorePhase(t *testing.T) {
	s := NewSpace()
	h := held("10.0.0.0/27", "n")
	for _, h.Owner.Phase = range []Phase{InService, Draining, CoolingDown} {
		if err := s.Restore(h); err != nil {
			t.Fatal(err)
		}
		if got, ok := s.Owner(h.CIDR); !ok || got != h.Owner {
			t.Errorf("owner %v %s, want %v %s", got, got.Phase, h.Owner, h.Owner.Phase)
		}
	}
}

func TestOddCIDRs(t *testing.T) {
	tests := map[string]netip.Prefix{
		"zero":          {},
		"host bits set": netip.MustParsePrefix("10.0.0.1/27"),
		"too long":      netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 33),
	}
	for name, cidr := range tests {
		t.Run(name, func(t *testing.T) {
			s := spaceOf(t, nil, nil)
			var conflict *ConflictError
			if err := s.Restore(Held{CIDR: cidr}); err == nil || errors.As(err, &conflict) {
				t.Errorf("Restore: %v", err)
			}
			if s.Release(cidr) {
				t.Error("released")
			}
			if _, ok := s.Owner(cidr); ok {
				t.Error("has an owner")
			}
			if got := s.Overlapping(cidr); got != nil {
				t.Errorf("overlaps %v", got)
			}
			s.Reserve(cidr)
			if got := s.Unreserve(cidr); got != cidr.IsValid() {
				t.Errorf("Unreserve: %v", got)
			}
			c := Cut{Ranges: []netip.Prefix{cidr}, BlockBits: 27}
			if _, err := s.Claim(c, Owner{}, []netip.Prefix{cidr}); (err == nil) != cidr.IsValid() {
				t.Errorf("Claim: %v", err)
			}
		})
	}
}

func TestReserveCounts(t *testing.T) {
	s := spaceOf(t, nil, nil)
	c := Cut{Ranges: cidrs("10.0.0.0/27"), BlockBits: 27}
	addr := netip.MustParsePrefix("10.0.0.7/32")
	s.Reserve(addr)
	s.Reserve(addr)
	for i, want := range []struct {
		did  bool
		free uint64
	}{{true, 0}, {true, 1}, {false, 1}} {
		if did := s.Unreserve(addr); did != want.did || s.Free(c) != want.free {
			t.Errorf("Unreserve %d: %v, %d free; want %+v", i+1, did, s.Free(c), want)
		}
	}
	s.Reserve(netip.MustParsePrefix("10.0.0.9/24"))
	if !s.Unreserve(netip.MustParsePrefix("10.0.0.0/24")) || s.Free(c) != 1 {
		t.Error("host bits matter to Reserve")
	}
}

func TestTotalAndFree(t *testing.T) {
	const most = math.MaxUint64
	tests := map[string]struct {
		blocks, ranges []string
		bits           int
		total, free    uint64
	}{
		"one range":                     {ranges: []string{"10.0.0.0/24"}, bits: 27, total: 8, free: 8},
		"two ranges":                    {ranges: []string{"10.0.0.0/24", "10.1.0.0/26"}, bits: 27, total: 10, free: 10},
		"nested":                        {ranges: []string{"10.0.0.0/26", "10.0.0.0/24", "10.0.0.128/25"}, bits: 27, total: 8, free: 8},
		"twice the same":                {ranges: []string{"10.0.0.0/24", "10.0.0.9/24"}, bits: 27, total: 8, free: 8},
		"too small":                     {ranges: []string{"10.0.0.0/28", "10.0.0.0/27"}, bits: 27, total: 1, free: 1},
		"a small block spoils a large":  {blocks: []string{"10.0.0.1/32"}, ranges: []string{"10.0.0.0/24"}, bits: 27, total: 8, free: 7},
		"a /8":                          {blocks: []string{"10.0.0.0/27"}, ranges: []string{"10.0.0.0/8"}, bits: 27, total: 1 << 19, free: 1<<19 - 1},
		"a /48":                         {blocks: []string{"2001:db8::/122"}, ranges: []string{"2001:db8::/48"}, bits: 122, total: most, free: most},
		"2^63":                          {blocks: []string{"2001:db8::/128"}, ranges: []string{"2001:db8::/65"}, bits: 128, total: 1 << 63, free: 1<<63 - 1},
		"2^64 saturates, 2^64-1 is":     {blocks: []string{"2001:db8::/128"}, ranges: []string{"2001:db8::/64"}, bits: 128, total: most, free: most},
		"2^64-2 does not saturate":      {blocks: []string{"2001:db8::/128", "2001:db8::9/128"}, ranges: []string{"2001:db8::/64"}, bits: 128, total: most, free: most - 1},
		"the sum saturates":             {ranges: []string{"2001:db8::/65", "2001:db9::/65", "2001:dba::/65"}, bits: 128, total: most, free: most},
		"all of IPv6 by address":        {ranges: []string{"::/0"}, bits: 128, total: most, free: most},
		"half full":                     {blocks: []string{"10.0.0.0/25"}, ranges: []string{"10.0.0.0/24"}, bits: 27, total: 8, free: 4},
		"covered":                       {blocks: []string{"10.0.0.0/16"}, ranges: []string{"10.0.0.0/24"}, bits: 27, total: 8},
		"longer than an address":        {ranges: []string{"10.0.0.0/24"}, bits: 33},
		"no sense":                      {ranges: []string{"10.0.0.0/24"}, bits: -1},
		"no ranges":                     {bits: 27},
		"a block beside, not inside it": {blocks: []string{"10.0.1.0/24"}, ranges: []string{"10.0.0.0/24"}, bits: 27, total: 8, free: 8},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := spaceOf(t, tc.blocks, nil)
			c := Cut{Ranges: cidrs(tc.ranges...), BlockBits: tc.bits}
			if got := c.Total(); got != tc.total {
				t.Errorf("total %d, want %d", got, tc.total)
			}
			if got := s.Free(c); got != tc.free {
				t.Errorf("free %d, want %d", got, tc.free)
			}
		})
	}
}

func TestConflictErrorNamesBoth(t *testing.T) {
	err := (&ConflictError{New: held("10.0.0.0/27", "m"), Old: held("10.0.0.0/24", "n")}).Error()
	want := "block 10.0.0.0/27 of node m (pool p) overlaps block 10.0.0.0/24 of node n (pool p)"
	if err != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestNoAllocations(t *testing.T) {
	s := spaceOf(t, []string{"10.0.0.0/27", "10.0.4.0/27"}, []string{"10.0.0.77/32"})
	v4 := Cut{Ranges: cidrs("10.0.0.0/16", "10.9.0.0/16"), BlockBits: 27}
	v6 := Cut{Ranges: cidrs("2001:db8::/48"), BlockBits: 122}
	near := cidrs("10.0.4.0/27", "10.0.0.0/27")
	empty, addr := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.0.2.2/32")
	adopted := held("10.0.0.0/27", "n")
	tests := map[string]func() bool{
		"claim the lowest":      func() bool { b, err := s.Claim(v4, Owner{}, nil); return err == nil && s.Release(b) },
		"claim a buddy":         func() bool { b, err := s.Claim(v4, Owner{}, near); return err == nil && s.Release(b) },
		"claim IPv6":            func() bool { b, err := s.Claim(v6, Owner{}, nil); return err == nil && s.Release(b) },
		"restore the same":      func() bool { return s.Restore(adopted) == nil },
		"restore and release":   func() bool { return s.Restore(Held{CIDR: empty}) == nil && s.Release(empty) },
		"reserve and unreserve": func() bool { s.Reserve(addr); return s.Unreserve(addr) },
		"no overlap":            func() bool { return s.Overlapping(empty) == nil },
		"overlap with itself":   func() bool { return s.Overlapping(adopted.CIDR) == nil },
		"owner":                 func() bool { _, ok := s.Owner(adopted.CIDR); return ok },
		"free":                  func() bool { return s.Free(v4) > 0 },
		"total":                 func() bool { return v4.Total() > 0 },
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			ok := true
			if got := testing.AllocsPerRun(100, func() { ok = f() && ok }); got != 0 || !ok {
				t.Errorf("%v allocations, ok %v", got, ok)
			}
		})
	}
}
