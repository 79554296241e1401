// One map on a canvas: it draws its section, zooms, and tells what is pointed at.
// All sizes are in pixels of the screen; unit is how many there are to a CSS one.

import { cellAt, format } from "./address.js";
import { grid, table } from "./layout.js";
import { cidrOf } from "./model.js";
import { count, el, many } from "./words.js";

const largest = 34, highest = 720, deepest = 128; // CSS pixels
const strayColumns = 30;
const flashFor = 1400; // milliseconds

export class SectionView {
  constructor(app, section) {
    this.app = app;
    this.cursor = 0;
    this.pointed = -1;
    this.flashes = new Map();
    this.zoomed = 0; // the cell's side, 0: all that fits
    this.offset = [0, 0];
    this.words = el("span");
    this.buttons = el("span", { class: "zoom" },
      el("button", { type: "button", "aria-label": "Zoom out", onclick: () => this.zoom(-1) }, "−"),
      el("button", { type: "button", "aria-label": "Show all", onclick: () => this.zoom(0) }, "all"),
      el("button", { type: "button", "aria-label": "Zoom in", onclick: () => this.zoom(1) }, "+"));
    this.canvas = el("canvas", { class: "map", tabindex: 0, role: "application", "aria-roledescription": "address map" });
    this.name = el("span", { class: "mono" });
    this.element = el("div", { class: "section" }, el("p", { class: "caption" }, this.name, this.words, this.buttons), this.canvas);
    this.set(section);
    this.#listen();
    this.visible = false;
    this.observer = new IntersectionObserver(([e]) => {
      this.visible = e.isIntersecting;
      if (this.visible) this.app.redraw(this);
      else this.canvas.width = 0; // its memory
    }, { rootMargin: "200px" });
    this.observer.observe(this.canvas);
  }

  remove() {
    this.observer.disconnect();
    this.visible = false; // it may be about to be drawn
    this.element.remove();
  }

  /** set takes what the section has become. */
  set(section) {
    this.section = section;
    this.bitmap = null;
    const title = section.stray ? "outside the pool's CIDRs" : section.cidr;
    this.name.textContent = title;
    this.words.textContent = section.stray ? count(section.held, "block") : [
      `${section.held.toLocaleString("en")} of ${many(2 ** section.bits)} held`,
      section.of !== section.cidr && `a part of ${section.of}`,
      section.drain && "draining: no new blocks from here",
      section.closedBy && `given out by pool ${section.closedBy}`,
    ].filter(Boolean).join(" · ");
    this.canvas.setAttribute("aria-label", `${section.pool.name} ${title}, ${this.words.textContent}`);
    this.cursor = Math.min(this.cursor, this.#size() - 1);
  }

  #size() { return this.section.stray ? this.section.cells.length : 2 ** this.section.bits; }

  /** measure finds the sizes for the room there is. */
  measure() {
    const s = this.section, unit = window.devicePixelRatio || 1, layout = this.app.layout;
    const room = this.element.parentElement.clientWidth;
    if (s.stray) {
      this.columns = Math.min(strayColumns, s.cells.length);
      this.rows = Math.ceil(s.cells.length / this.columns);
      this.table = null;
    } else {
      ({ columns: this.columns, rows: this.rows } = grid(layout, s.bits));
      this.table = table(layout, s.bits);
    }
    const labels = layout === "rows" && !s.stray;
    this.gutter = labels ? Math.ceil((7 * Math.max(15, this.#labelOf(this.rows - 1).length) + 12) * unit) : 0;
    const fit = Math.min((room * unit - this.gutter) / this.columns, (highest * unit) / this.rows, largest * unit);
    this.least = Math.max(1, Math.floor(fit));
    this.unit = unit;
    this.wide = this.columns * this.least;
    this.high = this.rows * this.least;
    const width = this.gutter + this.wide;
    this.canvas.style.width = `${width / unit}px`;
    this.canvas.style.height = `${this.high / unit}px`;
    if (this.canvas.width !== width || this.canvas.height !== this.high) {
      this.canvas.width = width;
      this.canvas.height = this.high;
    }
    this.#clamp();
  }

  get cell() { return Math.max(this.least, this.zoomed); }

  #labelOf(row) { return format(cellAt(this.section.at, this.section.pool.blockBits, row * this.columns)); }

  #place(cell) { return this.table ? this.table.place[cell] : cell; }
  #cellAt(x, y) {
    const p = y * this.columns + x;
    if (x < 0 || y < 0 || x >= this.columns || y >= this.rows || p >= this.columns * this.rows) return -1;
    if (!this.table) return p < this.section.cells.length ? p : -1;
    return this.table.cell[p];
  }

  /** draw draws all of it. It reports whether something still moves. */
  draw() {
    if (!this.visible) return false;
    this.measure();
    Object.assign(this.canvas.dataset, { cell: this.cell, gutter: this.gutter }); // for tests
    this.bitmap ??= this.#paintCells();
    const ctx = this.canvas.getContext("2d"), { css } = this.app.paint;
    ctx.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (this.gutter > 0) this.#drawGutter(ctx);
    ctx.save();
    ctx.translate(this.gutter, 0);
    ctx.beginPath();
    ctx.rect(0, 0, this.wide, this.high);
    ctx.clip();
    const [x0, y0, x1, y1] = this.#window(), c = this.cell;
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(this.bitmap, x0, y0, x1 - x0, y1 - y0, x0 * c - this.offset[0], y0 * c - this.offset[1], (x1 - x0) * c, (y1 - y0) * c);
    if (c >= 4 * this.unit) this.#drawGaps(ctx, css.surface);
    if (c >= 9 * this.unit) this.#drawBlocks(ctx);
    if (this.app.layout === "hilbert" && !this.section.stray) this.#drawSquares(ctx);
    const moves = this.#drawFlashes(ctx);
    this.#drawMarks(ctx);
    ctx.restore();
    return moves;
  }

  /** window is what is seen, in columns and rows. */
  #window() {
    const c = this.cell, [ox, oy] = this.offset;
    return [Math.floor(ox / c), Math.floor(oy / c),
      Math.min(this.columns, Math.ceil((ox + this.wide) / c)), Math.min(this.rows, Math.ceil((oy + this.high) / c))];
  }

  /** paintCells makes a picture with a pixel for each cell. */
  #paintCells() {
    const { paint, by, model } = this.app, s = this.section;
    const picture = new OffscreenCanvas(this.columns, this.rows), ctx = picture.getContext("2d");
    const data = ctx.createImageData(this.columns, this.rows), pixels = new Uint32Array(data.data.buffer);
    if (!s.stray) pixels.fill(paint.pixel(s.drain || s.closedBy ? "closed" : "free", false));
    for (const c of s.reserved) pixels[this.#place(c)] = paint.pixel("reserved", false);
    s.cells.forEach((b, c) => {
      pixels[this.#place(c)] = paint.pixel(paint.nameOf(b, by, model.nodes), !this.app.matches(b));
    });
    ctx.putImageData(data, 0, 0);
    return picture;
  }

  #drawGutter(ctx) {
    const { unit, cell } = this, [, y0, , y1] = this.#window();
    ctx.fillStyle = this.app.paint.css.muted;
    ctx.font = `${11 * unit}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace`;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    const step = 2 ** Math.max(0, Math.ceil(Math.log2((16 * unit) / cell)));
    for (let row = Math.ceil(y0 / step) * step; row < y1; row += step) {
      const y = row * cell - this.offset[1] + Math.max(6 * unit, Math.min(cell / 2, 10 * unit));
      ctx.fillText(this.#labelOf(row), this.gutter - 10 * unit, y);
    }
  }

  #drawGaps(ctx, colour) {
    const { cell, unit } = this, [x0, y0, x1, y1] = this.#window(), gap = Math.max(1, Math.round(unit));
    ctx.fillStyle = colour;
    for (let x = x0; x < x1; x++) ctx.fillRect((x + 1) * cell - this.offset[0] - gap, 0, gap, this.high);
    for (let y = y0; y < y1; y++) ctx.fillRect(0, (y + 1) * cell - this.offset[1] - gap, this.wide, gap);
  }

  /** drawBlocks draws what has room in larger cells: patterns, frames and text. */
  #drawBlocks(ctx) {
    const { cell, unit, app, section } = this, [x0, y0, x1, y1] = this.#window(), side = cell - Math.max(1, Math.round(unit));
    ctx.font = `${11 * unit}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    for (let y = y0; y < y1; y++) {
      for (let x = x0; x < x1; x++) {
        const b = section.cells[this.#cellAt(x, y)];
        if (!b || !app.matches(b)) continue;
        const px = x * cell - this.offset[0], py = y * cell - this.offset[1];
        if (b.phase !== "InService") {
          ctx.fillStyle = app.paint.pattern(ctx, b.phase, unit);
          ctx.fillRect(px, py, side, side);
        }
        if (b.conflict) {
          ctx.strokeStyle = app.paint.css.Conflict;
          ctx.lineWidth = 2.5 * unit;
          ctx.strokeRect(px + ctx.lineWidth / 2, py + ctx.lineWidth / 2, side - ctx.lineWidth, side - ctx.lineWidth);
        }
        if (cell >= 22 * unit && b.phase === "InService") this.#drawText(ctx, b, px, py, side);
      }
    }
  }

  #drawText(ctx, b, px, py, side) {
    const { app, unit } = this, node = b.node.slice(this.section.pool.cut);
    ctx.fillStyle = app.paint.ink(app.paint.nameOf(b, app.by, app.model.nodes));
    const lines = side < 84 * unit ? [app.by === "utilisation" ? String(b.used) : node] : [b.cidr.split("/")[0], node, `${b.used} of ${b.addresses}`];
    lines.forEach((line, i) => {
      if (ctx.measureText(line).width < side - 4 * unit) ctx.fillText(line, px + side / 2, py + side / 2 + (i - (lines.length - 1) / 2) * 15 * unit);
    });
  }

  /** drawSquares draws the CIDRs that a Hilbert map is made of. */
  #drawSquares(ctx) {
    const { cell, unit, rows, columns, section, app } = this, squares = Math.max(4, rows / 4);
    if (squares >= rows) return;
    ctx.strokeStyle = app.paint.css.muted;
    ctx.lineWidth = unit;
    const half = Math.max(1, Math.round(unit)) / 2;
    ctx.beginPath();
    for (let x = squares; x < columns; x += squares) {
      const px = x * cell - this.offset[0] - half;
      ctx.moveTo(px, 0);
      ctx.lineTo(px, this.high);
    }
    for (let y = squares; y < rows; y += squares) {
      const py = y * cell - this.offset[1] - half;
      ctx.moveTo(0, py);
      ctx.lineTo(this.wide, py);
    }
    ctx.stroke();
    if (squares * cell < 130 * unit) return;
    ctx.font = `${11 * unit}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace`;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.lineJoin = "round";
    for (let y = 0; y < rows; y += squares) {
      for (let x = 0; x < columns; x += squares) {
        const first = Math.floor(this.#cellAt(x, y) / (squares * squares)) * squares * squares;
        const text = `${format(cellAt(section.at, section.pool.blockBits, first))}/${section.pool.blockBits - 2 * Math.log2(squares)}`;
        // Text in cells goes before.
        if (cell >= 22 * unit && [0, 1, 2, 3].some((i) => section.cells[this.#cellAt(x + i, y + squares - 1)])) continue;
        const px = x * cell - this.offset[0] + 6 * unit, py = (y + squares) * cell - this.offset[1] - 8 * unit;
        ctx.strokeStyle = app.paint.css.surface;
        ctx.lineWidth = 4 * unit;
        ctx.strokeText(text, px, py);
        ctx.fillStyle = app.paint.css.text;
        ctx.fillText(text, px, py);
      }
    }
  }

  #rect(cell) {
    const p = this.#place(cell), c = this.cell;
    return [(p % this.columns) * c - this.offset[0], Math.floor(p / this.columns) * c - this.offset[1], c];
  }

  #drawFlashes(ctx) {
    const now = performance.now();
    for (const [cell, from] of this.flashes) {
      const part = (now - from) / flashFor;
      if (part >= 1 || !this.section.cells[cell]) {
        this.flashes.delete(cell);
        continue;
      }
      const [x, y, c] = this.#rect(cell), grow = (1 - part) * 7 * this.unit;
      ctx.globalAlpha = 1 - part;
      ctx.strokeStyle = this.app.paint.css.accent;
      ctx.lineWidth = 2.5 * this.unit;
      ctx.strokeRect(x - grow, y - grow, c + 2 * grow, c + 2 * grow);
      ctx.globalAlpha = 1;
    }
    return this.flashes.size > 0;
  }

  /** drawMarks frames what is pointed at, and the other blocks of its node. */
  #drawMarks(ctx) {
    const { app, section, unit } = this, focused = document.activeElement === this.canvas && app.byKeys;
    const marked = focused ? this.cursor : this.pointed;
    if (app.lit && this.cell >= 5 * unit) {
      section.cells.forEach((b, c) => b.node === app.lit && c !== marked && this.#frame(ctx, c, 1.5));
    }
    if (marked >= 0 && marked < this.#size()) this.#frame(ctx, marked, 2.5);
  }

  #frame(ctx, cell, wide) {
    const { unit } = this, [x, y, c] = this.#rect(cell), { css } = this.app.paint, gap = Math.max(1, Math.round(unit));
    const out = Math.max(0, 4 * unit - c / 2); // a frame around a tiny cell
    const box = [x - out, y - out, c - gap + 2 * out, c - gap + 2 * out];
    if (wide > 2) {
      ctx.strokeStyle = css.surface;
      ctx.lineWidth = (wide + 3) * unit;
      ctx.strokeRect(...box);
    }
    ctx.strokeStyle = css.text;
    ctx.lineWidth = wide * unit;
    ctx.strokeRect(...box);
  }

  flash(cell) { this.flashes.set(cell, performance.now()); }

  /** zoom goes in (1), out (-1) or shows all (0), around a point if there is one. */
  zoom(way, at = [this.wide / 2, this.high / 2]) {
    const before = this.cell, most = deepest * this.unit;
    let next = way === 0 ? this.least : way > 0 ? Math.max(before + 1, Math.round(before * 1.4)) : Math.round(before / 1.4);
    next = Math.min(most, Math.max(this.least, next));
    this.zoomed = next === this.least ? 0 : next;
    this.offset = this.offset.map((o, i) => Math.round(((o + at[i]) / before) * next - at[i]));
    this.#clamp();
    this.app.redraw(this);
  }

  #clamp() {
    const c = this.cell;
    this.offset = [Math.min(Math.max(0, this.offset[0]), this.columns * c - this.wide), Math.min(Math.max(0, this.offset[1]), this.rows * c - this.high)];
    this.canvas.classList.toggle("pan", c > this.least);
    this.buttons.classList.toggle("on", c > this.least);
  }

  /** reveal moves the map so that a cell is seen. */
  #reveal(cell) {
    const [x, y, c] = this.#rect(cell);
    if (x < 0 || x + c > this.wide) this.offset[0] += Math.round(x - this.wide / 2);
    if (y < 0 || y + c > this.high) this.offset[1] += Math.round(y - this.high / 2);
    this.#clamp();
  }

  /** go puts the cursor on a cell and tells of it. */
  go(cell) {
    this.measure(); // it may not have been drawn yet
    this.cursor = cell;
    this.#reveal(cell);
    const box = this.canvas.getBoundingClientRect(), [x, y, c] = this.#rect(cell);
    const left = box.left + (this.gutter + x) / this.unit, top = box.top + y / this.unit;
    this.app.point(this, cell, { left, top, right: left + c / this.unit, bottom: top + c / this.unit }, true);
  }

  #listen() {
    const c = this.canvas;
    let from = null, dragged = false;
    const local = (e) => [e.offsetX * this.unit - this.gutter, e.offsetY * this.unit];
    c.addEventListener("pointermove", (e) => {
      if (from) {
        dragged ||= Math.hypot(e.clientX - from.x, e.clientY - from.y) > 4;
        this.offset = [from.offset[0] - (e.clientX - from.x) * this.unit, from.offset[1] - (e.clientY - from.y) * this.unit].map(Math.round);
        this.#clamp();
        c.classList.toggle("dragged", dragged);
        if (dragged) return this.app.point(null);
      }
      this.#pointAt(local(e), e);
    });
    c.addEventListener("pointerleave", () => this.#pointAt([-1, -1], null));
    c.addEventListener("pointerdown", (e) => {
      this.#pointAt(local(e), e); // a finger comes without a move before
      dragged = false;
      if (this.cell > this.least) {
        from = { x: e.clientX, y: e.clientY, offset: this.offset };
        c.setPointerCapture(e.pointerId);
      }
    });
    c.addEventListener("pointerup", () => {
      from = null;
      c.classList.remove("dragged");
    });
    c.addEventListener("click", () => {
      if (!dragged && this.pointed >= 0) this.#choose(this.pointed);
    });
    c.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      this.zoom(e.deltaY < 0 ? 1 : -1, local(e));
    }, { passive: false });
    c.addEventListener("keydown", (e) => this.#key(e));
    c.addEventListener("focus", () => {
      if (this.app.byKeys) this.go(this.cursor);
    });
    c.addEventListener("blur", () => this.app.point(null));
  }

  #pointAt([x, y], e) {
    const [ox, oy] = this.offset, inside = x >= 0 && y >= 0 && x < this.wide && y < this.high;
    const cell = inside ? this.#cellAt(Math.floor((x + ox) / this.cell), Math.floor((y + oy) / this.cell)) : -1;
    if (e) this.app.byKeys = false;
    if (cell === this.pointed && cell < 0) return;
    this.pointed = cell;
    if (cell >= 0) this.cursor = cell;
    this.canvas.classList.toggle("held", cell >= 0 && this.section.cells[cell] !== undefined);
    if (cell < 0) return this.app.point(null);
    this.app.point(this, cell, { left: e.clientX, right: e.clientX, top: e.clientY, bottom: e.clientY }, false);
  }

  #choose(cell) {
    const b = this.section.cells[cell];
    if (b) this.app.toggle("node", b.node);
  }

  #key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const cell = this.#keyed(e.key);
    if (cell !== null) {
      this.app.byKeys = true;
      this.go(cell);
    } else if (e.key === "Enter" || e.key === " ") this.#choose(this.cursor);
    else if (e.key === "+" || e.key === "=") this.#zoomAtCursor(1);
    else if (e.key === "-") this.#zoomAtCursor(-1);
    else if (e.key === "0") this.zoom(0);
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  #zoomAtCursor(way) {
    const [x, y, c] = this.#rect(this.cursor);
    this.zoom(way, [x + c / 2, y + c / 2]);
    this.#reveal(this.cursor);
  }

  /** keyed is the cell that a key leads to; null if it is no such key. */
  #keyed(key) {
    const p = this.#place(this.cursor), x = p % this.columns, y = Math.floor(p / this.columns), last = this.#size() - 1;
    const to = (nx, ny) => {
      const cell = this.#cellAt(nx, ny);
      return cell < 0 ? this.cursor : cell;
    };
    switch (key) {
      case "ArrowUp": return to(x, y - 1);
      case "ArrowDown": return to(x, y + 1);
      case "ArrowLeft": return this.app.layout === "rows" ? Math.max(0, this.cursor - 1) : to(x - 1, y);
      case "ArrowRight": return this.app.layout === "rows" ? Math.min(last, this.cursor + 1) : to(x + 1, y);
      case "Home": return 0;
      case "End": return last;
      case "n": return this.#held(1);
      case "p": return this.#held(-1);
      default: return null;
    }
  }

  /** held is the next block that is shown, before or after the cursor. */
  #held(way) {
    const { cells } = this.section, here = cells[this.cursor];
    for (let c = this.cursor + way; c >= 0 && c < cells.length; c += way) {
      if (cells[c] && cells[c] !== here && this.app.matches(cells[c])) return c;
    }
    return this.cursor;
  }

  /** say is what a cell is, for those who hear it. */
  say(cell) {
    const b = this.section.cells[cell], name = cidrOf(this.section, cell);
    if (!b) return `${name}, ${this.section.reserved.has(cell) ? "reserved" : "free"}`;
    return `${name}, node ${b.node}, ${b.used} of ${b.addresses} in use`;
  }
}
