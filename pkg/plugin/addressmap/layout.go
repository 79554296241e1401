package addressmap

import (
	"net/netip"
	"slices"
)

// Layouts determine where on a map a cell is.
const (
	// Rows reads like text: from left to right, one row below the other. Each row is a CIDR of
	// its own.
	Rows = "rows"
	// Hilbert follows a Hilbert curve, so that each CIDR is a square or two adjacent squares, at
	// any size.
	Hilbert = "hilbert"
)

// wideColumns is the largest number of cells, as a power of two, with rows much longer than
// columns.
const wideColumns = 7

// grid returns the columns and rows of a map of 2^bits cells, both powers of two. Maps are up
// to four times as wide as high, because screens have more room there; with many small cells,
// up to twice.
func grid(layout string, bits int) (columns, rows int) {
	across := (bits + 1) / 2
	if layout == Rows {
		across = min(max(min((bits+3)/2, wideColumns), bits/2+1), bits)
	}
	return 1 << across, 1 << (bits - across)
}

// Place returns the column and row of a cell in a map of 2^bits cells.
func Place(layout string, bits, cell int) (x, y int) {
	columns, rows := grid(layout, bits)
	if layout == Rows {
		return cell % columns, cell / columns
	}
	if columns > rows { // the curve goes through two squares, one after the other
		x, y = hilbert(rows, cell%(rows*rows))
		return x + cell/(rows*rows)*rows, y
	}
	return hilbert(rows, cell)
}

// hilbert returns point d of the curve that leads from (0, 0) to (side-1, 0) in a square, with
// side a power of two: d2xy of Warren, Hacker's Delight, 2nd edition, chapter 16, in its
// iterative form.
func hilbert(side, d int) (x, y int) {
	for s := 1; s < side; s *= 2 {
		rx := d / 2 & 1
		ry := (d ^ rx) & 1
		if ry == 0 {
			if rx == 1 {
				x, y = s-1-x, s-1-y
			}
			x, y = y, x
		}
		x, y = x+s*rx, y+s*ry
		d /= 4
	}
	return x, y
}

const (
	// wholeBits: a CIDR of up to two to the power of it cells is drawn as a whole.
	wholeBits = 18
	// windowBits are the cells of a window into a larger one.
	windowBits = 12
	// mostWindows is the largest number of windows before they are enlarged.
	mostWindows = 16
)

// sectionsOf returns the parts of a range that are drawn: all of it or, if it has too many
// cells (a /64 of /122 has 2^58), the aligned windows that contain blocks, and the first one.
// bits is the prefix length of a cell.
func sectionsOf(r Section, bits int, held []netip.Prefix) []Section {
	if bits-r.CIDR.Bits() <= wholeBits {
		return []Section{r}
	}
	var windows []netip.Prefix
	for size := windowBits; ; size += 2 {
		windows = windowsOf(r.CIDR, bits-size, held)
		if len(windows) <= mostWindows || size >= wholeBits {
			break
		}
	}
	sections := make([]Section, len(windows))
	for i, w := range windows {
		sections[i] = r
		sections[i].CIDR = w
	}
	return sections
}

func windowsOf(cidr netip.Prefix, bits int, held []netip.Prefix) []netip.Prefix {
	windows := []netip.Prefix{netip.PrefixFrom(cidr.Addr(), bits).Masked()}
	for _, b := range held {
		if cidr.Contains(b.Addr()) {
			windows = append(windows, netip.PrefixFrom(b.Addr(), bits).Masked())
		}
	}
	slices.SortFunc(windows, netip.Prefix.Compare)
	return slices.Compact(windows)
}

// cellOf returns the number of the cell of length bits that contains an address of a section.
func cellOf(section netip.Prefix, bits int, addr netip.Addr) int {
	n, bytes := 0, addr.AsSlice()
	for i := section.Bits(); i < bits; i++ {
		n = n<<1 | int(bytes[i/8]>>(7-i%8))&1
	}
	return n
}

func cellAt(section netip.Prefix, bits, cell int) netip.Prefix {
	bytes := section.Addr().AsSlice()
	for i := bits - 1; i >= section.Bits(); i, cell = i-1, cell>>1 {
		bytes[i/8] |= byte(cell&1) << (7 - i%8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, bits)
}

// placeOf finds the section of a pool that contains a block, the block's first cell there and its
// number of cells. A block smaller than a cell fills it. It returns false if there is none, as for
// a block of a CIDR that was removed.
func (p Pool) placeOf(b netip.Prefix) (section, first, count int, ok bool) {
	for i, s := range p.Sections {
		if s.CIDR.Overlaps(b) && s.CIDR.Bits() <= b.Bits() {
			return i, cellOf(s.CIDR, p.BlockBits, b.Addr()), 1 << max(0, p.BlockBits-b.Bits()), true
		}
	}
	return 0, 0, 0, false
}
