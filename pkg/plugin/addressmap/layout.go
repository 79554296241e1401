package addressmap

// Layout determines where on a map a cell is.
type Layout string

const (
	// Rows reads like text: from left to right, one row below the other. Each row is a CIDR of
	// its own.
	Rows Layout = "rows"
	// Hilbert follows a Hilbert curve, so that each CIDR is a square or two adjacent squares, at
	// any size.
	Hilbert Layout = "hilbert"
)

// wideColumns is the largest number of cells, as a power of two, with rows much longer than
// columns.
const wideColumns = 7

// grid returns the columns and rows of a map of 2^bits cells, both powers of two. Maps are up
// to four times as wide as high, because screens have more room there; with many small cells,
// up to twice.
func (l Layout) grid(bits int) (columns, rows int) {
	across := (bits + 1) / 2
	if l == Rows {
		across = min(max(min((bits+3)/2, wideColumns), bits/2+1), bits)
	}
	return 1 << across, 1 << (bits - across)
}

// At returns the column and row of a cell in a map of 2^bits cells.
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
