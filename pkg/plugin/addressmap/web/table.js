// The same as text: a table of blocks, page by page.

import { age, count, el, phases } from "./words.js";

const pageSize = 200;

export class Table {
  #page = 0;

  constructor(app) { this.app = app; }

  /** draw is the table of the blocks that are shown. */
  draw() {
    const rows = this.app.model.sorted.filter((b) => this.app.matches(b));
    const pages = Math.max(1, Math.ceil(rows.length / pageSize));
    this.#page = Math.min(this.#page, pages - 1);
    const part = rows.slice(this.#page * pageSize, (this.#page + 1) * pageSize);
    const head = ["Block", "Pool", "Node", "Phase", "In use", "Of", "Age", "Waits for"];
    return el("div", { class: "table" },
      el("table", {},
        el("caption", { class: "hidden" }, `${count(rows.length, "block")}, sorted by address`),
        el("thead", {}, el("tr", {}, ...head.map((h) => el("th", { scope: "col", class: h === "In use" || h === "Of" ? "number" : null }, h)))),
        el("tbody", {}, ...part.map((b) => this.#row(b)))),
      el("div", { class: "pages" },
        this.#turn("Earlier", -1, this.#page === 0), el("span", {}, `Page ${this.#page + 1} of ${pages}, ${count(rows.length, "block")}`),
        this.#turn("Later", 1, this.#page === pages - 1)));
  }

  #turn(text, by, disabled) {
    return el("button", { type: "button", class: "plain", disabled, onclick: () => {
      this.#page += by;
      this.app.render();
      document.getElementById("pools").focus();
      scrollTo(0, 0);
    } }, text);
  }

  #row(b) {
    const node = el("button", { type: "button", "aria-label": `Only blocks of ${b.node}`, onclick: () => this.app.toggle("node", b.node) }, b.node);
    const phase = phases[b.phase] + (b.since ? ` for ${age(b.since)}` : "") + (b.conflict ? ", overlaps" : "");
    return el("tr", {},
      el("td", { class: "mono" }, b.cidr), el("td", {}, b.pool), el("td", {}, node), el("td", {}, phase),
      el("td", { class: "number" }, String(b.used)), el("td", { class: "number" }, String(b.addresses)),
      el("td", {}, age(b.created)), el("td", {}, b.waitsFor ?? ""));
  }
}
