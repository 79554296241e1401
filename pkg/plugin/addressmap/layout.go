package addressmap

// Layout says where on a map a cell is.
type Layout string

const (
	// Rows reads as a text does: from left to right, a row below the other. Each
	// row is a CIDR of its own, with a name that people know.
	Rows Layout = "rows"
	// Hilbert winds along a Hilbert curve, so that each CIDR is a square or two
	// squares side by side, whatever its size.
	Hilbert Layout = "hilbert"
)

// wideColumns is up to how many cells, as a power of two, a row is much longer
// than a column.
const wideColumns = 7

// grid is how many columns and rows a map of 2^bits cells has, both powers of
// two. Rows are up to four times as wide as high, as screens have more room there;
// of many small cells, up to twice.
func (l Layout) grid(bits int) (columns, rows int) {
	across := (bits + 1) / 2
	if l == Rows {
		across = min(max(min((bits+3)/2, wideColumns), bits/2+1), bits)
	}
	return 1 << across, 1 << (bits - across)
}

// At is the column and row of a cell of a map of 2^bits.
func (l Layout) At(bits, cell int) (x, y int) {
	columns, rows := l.grid(bits)
	if l == Rows {
		return cell % columns, cell / columns
	}
	if columns > rows { // the curve goes through two squares, one after the other
		x, y = hilbert(rows, cell%(rows*rows))
		return x + cell/(rows*rows)*rows, y
	}
	return hilbert(rows, cell)
}

// hilbert is point d of the curve that goes from (0, 0) to (side-1, 0) in a
// square, side being a power of two: d2xy of Warren, Hacker's Delight, 2nd
// edition, chapter 16, in its iterative form.
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
