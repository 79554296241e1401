// The card beside what is pointed at.

import { cidrOf } from "./model.js";
import { age, count, el, percent, phases } from "./words.js";

const mostUsers = 8;
const pause = 70; // milliseconds before users are asked for

export class Card {
  #element = document.getElementById("card");
  #timer = 0;
  #asked = null;
  #users = new Map(); // by CIDR, until the block changes

  constructor(app) { this.app = app; }

  /** forget drops what is known of blocks that have changed. */
  forget(cidrs) {
    for (const c of cidrs) this.#users.delete(c);
  }

  hide() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
    this.#element.hidden = true;
  }

  /** show tells of a cell, beside a rectangle of the window. */
  show(section, cell, beside) {
    const block = section.cells[cell];
    this.#element.replaceChildren(...(block ? this.#held(block) : this.#free(section, cell)));
    this.#element.hidden = false;
    this.#put(beside);
    if (block) this.#ask(block, beside);
  }

  #free(section, cell) {
    const { pool } = section, reserved = section.reserved.has(cell);
    const why = section.closedBy ? `pool ${section.closedBy} gives it out` : section.drains ? "its CIDR drains" : section.cordoned ? "its CIDR is cordoned" : "no node holds it";
    return [
      el("h3", {}, cidrOf(section, cell)),
      el("p", { class: "sub" }, reserved ? `Reserved: pool ${pool.pool} never gives it out` : `Free: ${why}`),
    ];
  }

  #held(b) {
    const { app } = this, name = app.paint.nameOf(b, app.by, app.model.nodes);
    const swatch = el("span", { class: "swatch" }), fill = el("i");
    swatch.style.background = app.paint.css[name];
    fill.style.width = b.addresses > 0 ? `${Math.min(100, (100 * b.used) / b.addresses)}%` : "0";
    fill.style.background = app.paint.css.InService;
    const rows = [
      ["Pool", b.pool],
      ["Phase", phases[b.phase] + (b.since ? ` for ${age(b.since)}` : "") + (b.reason ? ` (${b.reason})` : "")],
      b.keptFor && ["Kept for", b.keptFor],
      b.waitsFor && ["Waits for", b.waitsFor],
      ["In use", `${b.used} of ${b.addresses} addresses, ${percent(b.used, b.addresses)}`],
      ["Age", age(b.created)],
    ].filter(Boolean);
    return [
      el("h3", {}, b.cidr),
      el("p", { class: "sub" }, swatch, b.node),
      b.conflict ? el("p", { class: "warn" }, "It overlaps a block that was there before") : "",
      el("dl", {}, ...rows.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)])),
      el("div", { class: "use" }, fill),
      this.#list(b),
    ];
  }

  #list(b) {
    const users = this.#users.get(b.cidr);
    if (!users || users.length === 0) return "";
    const more = users.length - mostUsers;
    return el("ul", {}, ...users.slice(0, mostUsers).map((u) => el("li", {}, el("span", {}, u.name), el("span", { class: "mono" }, u.ip))),
      more > 0 ? el("li", {}, el("span", {}, `and ${count(more, "more")}`.replace(/mores$/, "more"))) : "");
  }

  /** ask reads who uses a block, if the pointer stays. */
  #ask(b, beside) {
    clearTimeout(this.#timer);
    this.#asked?.abort();
    if (this.#users.has(b.cidr) || b.used === 0) return;
    this.#timer = setTimeout(async () => {
      this.#asked = new AbortController();
      try {
        const answer = await fetch(`block?cidr=${encodeURIComponent(b.cidr)}`, { signal: this.#asked.signal });
        this.#users.set(b.cidr, await answer.json());
      } catch {
        return; // pointed elsewhere, or cut off: the page says so
      }
      if (this.#element.hidden) return;
      this.#element.replaceChildren(...this.#held(b));
      this.#put(beside);
    }, pause);
  }

  #put(beside) {
    const { offsetWidth: w, offsetHeight: h } = this.#element, gap = 14;
    let left = beside.right + gap, top = beside.top - 10;
    if (left + w > innerWidth - 8) left = beside.left - gap - w;
    if (left < 8) [left, top] = [Math.max(8, Math.min(beside.left, innerWidth - w - 8)), beside.bottom + gap];
    if (top + h > innerHeight - 8) top = Math.max(8, innerHeight - h - 8);
    this.#element.style.left = `${left}px`;
    this.#element.style.top = `${Math.max(8, top)}px`;
  }
}
