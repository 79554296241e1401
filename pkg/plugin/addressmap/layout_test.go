package addressmap

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var prefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestGrid(t *testing.T) {
	type size struct{ Columns, Rows int }
	tests := map[string]struct {
		bits          int
		rows, hilbert size
	}{
		"one block":       {0, size{1, 1}, size{1, 1}},
		"two":             {1, size{2, 1}, size{2, 1}},
		"a /26 of /29":    {3, size{8, 1}, size{4, 2}},
		"a /20 of /27":    {7, size{32, 4}, size{16, 8}},
		"a /19 of /27":    {8, size{32, 8}, size{16, 16}},
		"4,096 blocks":    {12, size{128, 32}, size{64, 64}},
		"131,072 blocks":  {17, size{512, 256}, size{512, 256}},
		"8,192 blocks":    {13, size{128, 64}, size{128, 64}},
		"the largest map": {wholeBits, size{1024, 256}, size{512, 512}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for layout, want := range map[string]size{Rows: test.rows, Hilbert: test.hilbert} {
				columns, rows := grid(layout, test.bits)
				if got := (size{columns, rows}); got != want {
					t.Errorf("%s: %v, want %v", layout, got, want)
				}
			}
		})
	}
}

// Each cell has its own place, in both layouts.
func TestEveryCellHasItsPlace(t *testing.T) {
	for _, layout := range []string{Rows, Hilbert} {
		for bits := range 13 {
			columns, rows := grid(layout, bits)
			seen := map[[2]int]bool{}
			for cell := range 1 << bits {
				x, y := Place(layout, bits, cell)
				if x < 0 || x >= columns || y < 0 || y >= rows || seen[[2]int{x, y}] {
					t.Fatalf("%s of 2^%d: cell %d is at %d, %d", layout, bits, cell, x, y)
				}
				seen[[2]int{x, y}] = true
			}
		}
	}
}

// On the curve, adjacent addresses are adjacent on the map, and each aligned range is a square if
// its size is a power of four.
func TestHilbert(t *testing.T) {
	for bits := 1; bits < 13; bits++ {
		lastX, lastY := Place(Hilbert, bits, 0)
		for cell := 1; cell < 1<<bits; cell++ {
			x, y := Place(Hilbert, bits, cell)
			if (x-lastX)*(x-lastX)+(y-lastY)*(y-lastY) != 1 {
				t.Fatalf("2^%d: cell %d is at %d, %d, and the one before at %d, %d", bits, cell, x, y, lastX, lastY)
			}
			lastX, lastY = x, y
		}
		for size := 2; size <= bits; size += 2 {
			side := 1 << (size / 2)
			for first := 0; first < 1<<bits; first += 1 << size {
				x0, y0 := Place(Hilbert, bits, first)
				for cell := first; cell < first+1<<size; cell++ {
					if x, y := Place(Hilbert, bits, cell); x/side != x0/side || y/side != y0/side {
						t.Fatalf("2^%d: cells from %d on are no square of %d", bits, first, side)
					}
				}
			}
		}
	}
}

func TestCells(t *testing.T) {
	tests := map[string]struct {
		section, block netip.Prefix
		cell           int
	}{
		"first":       {cidr("10.20.0.0/16"), cidr("10.20.0.0/24"), 0},
		"last":        {cidr("10.20.0.0/16"), cidr("10.20.255.0/24"), 255},
		"within":      {cidr("10.20.0.0/16"), cidr("10.20.1.32/27"), 9},
		"all of it":   {cidr("10.20.0.0/24"), cidr("10.20.0.0/24"), 0},
		"IPv6":        {cidr("fd00:10::/108"), cidr("fd00:10::f:1200/120"), 0xf12},
		"one address": {cidr("10.0.0.0/30"), cidr("10.0.0.3/32"), 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := cellOf(test.section, test.block.Bits(), test.block.Addr()); got != test.cell {
				t.Errorf("cellOf is %d, want %d", got, test.cell)
			}
			if got := cellAt(test.section, test.block.Bits(), test.cell); got != test.block {
				t.Errorf("cellAt is %s, want %s", got, test.block)
			}
		})
	}
}

func TestSectionsOf(t *testing.T) {
	spread := []netip.Prefix{}
	for i := range 40 {
		spread = append(spread, cellAt(cidr("fd00::/64"), 122, i<<13))
	}
	tests := map[string]struct {
		cidr netip.Prefix
		bits int
		held []netip.Prefix
		want []netip.Prefix
	}{
		"small":                       {cidr("10.0.0.0/8"), 26, nil, []netip.Prefix{cidr("10.0.0.0/8")}},
		"too large, and empty":        {cidr("fd00::/64"), 122, nil, []netip.Prefix{cidr("fd00::/110")}},
		"only windows with blocks":    {cidr("fd00::/64"), 122, []netip.Prefix{cidr("fd00::40/122"), cidr("fd00::9:0:40/122"), cidr("fd01::/122")}, []netip.Prefix{cidr("fd00::/110"), cidr("fd00::9:0:0/110")}},
		"many windows become larger":  {cidr("fd00::/64"), 122, spread, []netip.Prefix{cidr("fd00::/106"), cidr("fd00::40:0/106"), cidr("fd00::80:0/106"), cidr("fd00::c0:0/106"), cidr("fd00::100:0/106")}},
		"a block of another pool's":   {cidr("fd00::/64"), 122, []netip.Prefix{cidr("10.0.0.0/27")}, []netip.Prefix{cidr("fd00::/110")}},
		"as large as is drawn in one": {cidr("10.0.0.0/8"), 8 + wholeBits, nil, []netip.Prefix{cidr("10.0.0.0/8")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []netip.Prefix
			for _, s := range sectionsOf(Section{CIDR: test.cidr, Of: test.cidr, Drains: true}, test.bits, test.held) {
				got = append(got, s.CIDR)
				if s.Of != test.cidr || !s.Drains {
					t.Errorf("section %v forgot what it is part of", s)
				}
			}
			if diff := cmp.Diff(test.want, got, prefixes); diff != "" {
				t.Errorf("sections (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlaceOf(t *testing.T) {
	p := Pool{BlockBits: 27, Sections: []Section{{CIDR: cidr("10.0.0.0/24")}, {CIDR: cidr("10.1.0.0/24")}}}
	tests := map[string]struct {
		block netip.Prefix
		want  [3]int // section, first cell, number of cells
		none  bool
	}{
		"on the grid":          {block: cidr("10.1.0.64/27"), want: [3]int{1, 2, 1}},
		"larger than a cell":   {block: cidr("10.0.0.128/25"), want: [3]int{0, 4, 4}},
		"smaller than a cell":  {block: cidr("10.0.0.48/28"), want: [3]int{0, 1, 1}},
		"outside":              {block: cidr("10.2.0.0/27"), none: true},
		"larger than a CIDR":   {block: cidr("10.0.0.0/23"), none: true},
		"of the other family":  {block: cidr("fd00::/122"), none: true},
		"as large as the CIDR": {block: cidr("10.0.0.0/24"), want: [3]int{0, 0, 8}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			section, first, count, ok := p.placeOf(test.block)
			if got := [3]int{section, first, count}; got != test.want || ok == test.none {
				t.Errorf("%v, %t; want %v", got, ok, test.want)
			}
		})
	}
}
