// The part of one map that is seen: how large its cells are, and where each lies.
// All sizes are in pixels of the screen; unit is how many there are to a CSS one.

import { cellAt, format } from "./address.js";
import { grid, table } from "./layout.js";

const largest = 34, highest = 720, deepest = 128; // CSS pixels
const strayColumns = 30;

export class Viewport {
  zoomed = 0; // the cell's side, 0: all that fits
  offset = [0, 0];

  /** measure finds the sizes for the room there is, in CSS pixels. */
  measure(section, layout, room) {
    const unit = window.devicePixelRatio || 1;
    this.section = section;
    if (section.stray) {
      this.columns = Math.min(strayColumns, section.cells.length);
      this.rows = Math.ceil(section.cells.length / this.columns);
      this.table = null;
    } else {
      ({ columns: this.columns, rows: this.rows } = grid(layout, section.bits));
      this.table = table(layout, section.bits);
    }
    const labels = layout === "rows" && !section.stray;
    this.gutter = labels ? Math.ceil((7 * Math.max(15, this.labelOf(this.rows - 1).length) + 12) * unit) : 0;
    const fit = Math.min((room * unit - this.gutter) / this.columns, (highest * unit) / this.rows, largest * unit);
    this.least = Math.max(1, Math.floor(fit));
    this.unit = unit;
    this.wide = this.columns * this.least;
    this.high = this.rows * this.least;
    this.#clamp();
  }

  get cell() { return Math.max(this.least, this.zoomed); }
  get isZoomed() { return this.cell > this.least; }

  /** labelOf is the first address of a row. */
  labelOf(row) { return format(cellAt(this.section.at, this.section.pool.blockBits, row * this.columns)); }

  /** place is where a cell lies: row × columns + column. */
  place(cell) { return this.table ? this.table.place[cell] : cell; }

  /** cellAt is the cell of a column and a row; -1: none. */
  cellAt(x, y) {
    const p = y * this.columns + x;
    if (x < 0 || y < 0 || x >= this.columns || y >= this.rows || p >= this.columns * this.rows) return -1;
    if (!this.table) return p < this.section.cells.length ? p : -1;
    return this.table.cell[p];
  }

  /** hit is the cell at a point; -1: none. */
  hit([x, y]) {
    const [ox, oy] = this.offset;
    if (x < 0 || y < 0 || x >= this.wide || y >= this.high) return -1;
    return this.cellAt(Math.floor((x + ox) / this.cell), Math.floor((y + oy) / this.cell));
  }

  /** rect is where a cell is seen: left, top and side. */
  rect(cell) {
    const p = this.place(cell), c = this.cell;
    return [(p % this.columns) * c - this.offset[0], Math.floor(p / this.columns) * c - this.offset[1], c];
  }

  /** window is what is seen, in columns and rows. */
  window() {
    const c = this.cell, [ox, oy] = this.offset;
    return [Math.floor(ox / c), Math.floor(oy / c),
      Math.min(this.columns, Math.ceil((ox + this.wide) / c)), Math.min(this.rows, Math.ceil((oy + this.high) / c))];
  }

  /** zoom goes in (1), out (-1) or shows all (0), around a point if there is one. */
  zoom(way, at = [this.wide / 2, this.high / 2]) {
    const before = this.cell, most = deepest * this.unit;
    let next = way === 0 ? this.least : way > 0 ? Math.max(before + 1, Math.round(before * 1.4)) : Math.round(before / 1.4);
    next = Math.min(most, Math.max(this.least, next));
    this.zoomed = next === this.least ? 0 : next;
    this.move(this.offset.map((o, i) => ((o + at[i]) / before) * next - at[i]));
  }

  /** move lets the map begin elsewhere, as far as there is more of it. */
  move(offset) {
    this.offset = offset.map(Math.round);
    this.#clamp();
  }

  /** reveal moves the map so that a cell is seen. */
  reveal(cell) {
    const [x, y, c] = this.rect(cell);
    if (x < 0 || x + c > this.wide) this.offset[0] += Math.round(x - this.wide / 2);
    if (y < 0 || y + c > this.high) this.offset[1] += Math.round(y - this.high / 2);
    this.#clamp();
  }

  #clamp() {
    const c = this.cell;
    this.offset = [Math.min(Math.max(0, this.offset[0]), this.columns * c - this.wide), Math.min(Math.max(0, this.offset[1]), this.rows * c - this.high)];
  }
}
