// Where on a map a cell is. Rows read like text, and each row is a CIDR of its own. A Hilbert curve
// makes each CIDR a square, or two adjacent squares, at any size.

/**
 * grid is how many columns and rows a map of 2^bits cells has. Maps are up to four times as wide as
 * high, because screens have more room there; with many small cells, up to twice.
 */
export function grid(layout, bits) {
  let across = Math.ceil(bits / 2);
  if (layout === "rows") across = Math.min(Math.max(Math.min((bits + 3) >> 1, 7), (bits >> 1) + 1), bits);
  return { columns: 2 ** across, rows: 2 ** (bits - across) };
}

/** at is the column and row of a cell. */
export function at(layout, bits, cell) {
  const { columns, rows } = grid(layout, bits);
  if (layout === "rows") return [cell % columns, Math.floor(cell / columns)];
  if (columns === rows) return hilbert(rows, cell);
  const [x, y] = hilbert(rows, cell % (rows * rows));
  return [x + Math.floor(cell / (rows * rows)) * rows, y];
}

/**
 * hilbert is point d of the curve that leads from (0, 0) to (side-1, 0) in a square: d2xy of Warren,
 * Hacker's Delight, 2nd edition, chapter 16, in its iterative form.
 */
function hilbert(side, d) {
  let x = 0, y = 0;
  for (let s = 1; s < side; s *= 2) {
    const rx = (d >> 1) & 1, ry = (d ^ rx) & 1;
    if (ry === 0) {
      if (rx === 1) [x, y] = [s - 1 - x, s - 1 - y];
      [x, y] = [y, x];
    }
    x += s * rx;
    y += s * ry;
    d >>= 2;
  }
  return [x, y];
}

const tables = new Map();

/**
 * table has both ways for all cells: place[cell] is row × columns + column, and
 * cell[place] the reverse.
 */
export function table(layout, bits) {
  const key = `${layout} ${bits}`;
  if (!tables.has(key)) {
    const { columns } = grid(layout, bits);
    const place = new Uint32Array(2 ** bits), cell = new Uint32Array(2 ** bits);
    for (let c = 0; c < place.length; c++) {
      const [x, y] = at(layout, bits, c);
      place[c] = y * columns + x;
      cell[place[c]] = c;
    }
    tables.set(key, { place, cell });
  }
  return tables.get(key);
}
