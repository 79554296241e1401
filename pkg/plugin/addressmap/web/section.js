// One map: its caption, its canvas and what there is to know of it.

import { draw, paintCells } from "./draw.js";
import { listen } from "./input.js";
import { cidrOf } from "./model.js";
import { Viewport } from "./viewport.js";
import { count, el, many } from "./words.js";

export class SectionView {
  cursor = 0;
  pointed = -1;
  flashes = new Map(); // since when, by cell
  visible = false;
  port = new Viewport();

  constructor(app, section) {
    this.app = app;
    this.words = el("span");
    this.buttons = el("span", { class: "zoom" },
      el("button", { type: "button", "aria-label": "Zoom out", onclick: () => this.zoom(-1) }, "−"),
      el("button", { type: "button", "aria-label": "Show all", onclick: () => this.zoom(0) }, "all"),
      el("button", { type: "button", "aria-label": "Zoom in", onclick: () => this.zoom(1) }, "+"));
    this.canvas = el("canvas", { class: "map", tabindex: 0, role: "application", "aria-roledescription": "address map" });
    this.name = el("span", { class: "mono" });
    this.element = el("div", { class: "section" }, el("p", { class: "caption" }, this.name, this.words, this.buttons), this.canvas);
    this.set(section);
    listen(this);
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
      section.drains ? "draining: no new blocks from here" : section.cordoned && "cordoned: no new blocks from here",
      section.closedBy && `assigned by pool ${section.closedBy}`,
    ].filter(Boolean).join(" · ");
    this.canvas.setAttribute("aria-label", `${section.pool.pool} ${title}, ${this.words.textContent}`);
    this.cursor = Math.min(this.cursor, this.size - 1);
  }

  /** size is how many cells there are. */
  get size() { return this.section.stray ? this.section.cells.length : 2 ** this.section.bits; }

  #measure() {
    const { port, canvas } = this;
    port.measure(this.section, this.app.layout, this.element.parentElement.clientWidth);
    const width = port.gutter + port.wide;
    canvas.style.width = `${width / port.unit}px`;
    canvas.style.height = `${port.high / port.unit}px`;
    if (canvas.width !== width || canvas.height !== port.high) {
      canvas.width = width;
      canvas.height = port.high;
    }
    this.#moved();
  }

  /** draw draws all of it. It reports whether something still moves. */
  draw() {
    if (!this.visible) return false;
    this.#measure();
    Object.assign(this.canvas.dataset, { cell: this.port.cell, gutter: this.port.gutter }); // for tests
    this.bitmap ??= paintCells(this);
    return draw(this);
  }

  flash(cell) { this.flashes.set(cell, performance.now()); }

  /** zoom goes in (1), out (-1) or shows all (0), around a point if there is one. */
  zoom(way, at) {
    this.port.zoom(way, at);
    this.#moved();
    this.app.redraw(this);
  }

  move(offset) {
    this.port.move(offset);
    this.#moved();
  }

  reveal(cell) {
    this.port.reveal(cell);
    this.#moved();
  }

  #moved() {
    this.canvas.classList.toggle("pan", this.port.isZoomed);
    this.buttons.classList.toggle("on", this.port.isZoomed);
  }

  /** go puts the cursor on a cell and tells of it. */
  go(cell) {
    this.#measure(); // it may not have been drawn yet
    this.cursor = cell;
    this.reveal(cell);
    const { port } = this, box = this.canvas.getBoundingClientRect(), [x, y, c] = port.rect(cell);
    const left = box.left + (port.gutter + x) / port.unit, top = box.top + y / port.unit;
    this.app.point(this, cell, { left, top, right: left + c / port.unit, bottom: top + c / port.unit }, true);
  }

  /** say is what a cell is, for those who hear it. */
  say(cell) {
    const b = this.section.cells[cell], name = cidrOf(this.section, cell);
    if (!b) return `${name}, ${this.section.reserved.has(cell) ? "reserved" : "free"}`;
    return `${name}, node ${b.node}, ${b.used} of ${b.addresses} in use`;
  }
}
