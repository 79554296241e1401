// The page: what is shown, by which colours, and what the keys do.

import { Card } from "./card.js";
import { legend, others } from "./legend.js";
import { Model } from "./model.js";
import { Paint } from "./paint.js";
import { Pools } from "./pools.js";
import { Search } from "./search.js";
import { Table } from "./table.js";
import { count, el, phases } from "./words.js";

const byId = (id) => document.getElementById(id);
const choices = { by: ["utilisation", "node", "phase"], layout: ["rows", "hilbert", "table"], theme: ["auto", "light", "dark"] };
const silentAfter = 25000; // milliseconds; the server says that it is alive every 10 s

class App {
  model = new Model();
  shown = { by: "utilisation", layout: "rows", theme: "auto" };
  filters = {}; // node, phase, pool; or cidrs with a label
  lit = null; // the node whose blocks are framed
  byKeys = false;
  #ready = false;
  #heard = 0;

  constructor() {
    this.#readHash();
    this.#setTheme();
    this.card = new Card(this);
    this.pools = new Pools(this, byId("pools"));
    this.table = new Table(this);
    this.search = new Search(this);
    this.#listen();
    this.#connect();
  }

  get by() { return this.shown.by; }
  get layout() { return this.shown.layout === "hilbert" ? "hilbert" : "rows"; }

  matches(b) {
    const f = this.filters;
    return (!f.node || b.node === f.node) && (!f.phase || b.phase === f.phase) && (!f.pool || b.pool === f.pool) && (!f.cidrs || f.cidrs.has(b.cidr));
  }

  filter(filters) {
    this.filters = filters;
    this.#saveHash();
    this.render();
    const n = this.#matching();
    byId("said").textContent = Object.keys(filters).length > 0 ? `${count(n, "block")} shown` : "all blocks shown";
  }

  /** toggle filters by one thing more, or no more. */
  toggle(what, value) {
    const next = { ...this.filters };
    delete next.cidrs;
    delete next.label;
    if (next[what] === value) delete next[what];
    else next[what] = value;
    this.filter(next);
  }

  only(cidrs, label) { this.filter(cidrs ? { cidrs: new Set(cidrs), label } : {}); }

  /** jump shows where something was found. */
  jump({ section, cell }) {
    if (this.shown.layout === "table") return;
    this.byKeys = true;
    this.pools.go(section.key, cell);
  }

  jumpToFirst() {
    const first = this.model.sorted.find((b) => this.matches(b));
    if (first) this.jump(this.model.find(first.at));
  }

  /** point tells of a cell beside a rectangle of the window, or of none. */
  point(view, cell, beside, aloud) {
    const block = view?.section.cells[cell];
    const lit = block ? block.node : null;
    if (view) this.card.show(view.section, cell, beside);
    else this.card.hide();
    if (aloud) byId("said").textContent = view.say(cell);
    if (lit !== this.lit) {
      this.lit = lit;
      this.pools.redraw();
    } else if (view) this.redraw(view);
    else this.pools.redraw();
  }

  redraw(view) { this.pools.redraw(view); }

  set(what, value) {
    this.shown[what] = value;
    if (what === "theme") this.#setTheme();
    this.card.hide();
    this.#saveHash();
    this.render();
  }

  #cycleTheme() {
    const all = choices.theme;
    this.set("theme", all[(all.indexOf(this.shown.theme) + 1) % all.length]);
  }

  #setTheme() {
    const { theme } = this.shown, system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    document.documentElement.dataset.theme = theme === "auto" ? system : theme;
    this.paint = new Paint();
  }

  /** render brings the page to what the model and the choices are. */
  render() {
    if (!this.#ready) return;
    byId("cluster").textContent = this.model.cluster;
    document.title = `Pod addresses ${this.model.cluster && `of ${this.model.cluster}`}`;
    for (const what of ["by", "layout"]) {
      for (const b of byId(what).children) {
        const on = b.dataset.value === this.shown[what];
        b.setAttribute("aria-checked", String(on));
        b.tabIndex = on ? 0 : -1;
      }
    }
    const { theme } = this.shown;
    byId("theme").textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[theme];
    byId("theme").setAttribute("aria-label", `Theme: ${theme === "auto" ? "as the system" : theme}`);
    this.#drawLegend();
    this.#drawFilters();
    if (this.shown.layout === "table") {
      this.pools.clear();
      byId("pools").replaceChildren(this.table.draw());
    } else this.pools.render();
  }

  #drawLegend() {
    // What has the focus keeps it: a list that says the same stays.
    if (byId("legend").dataset.is === this.#legendKey()) return;
    byId("legend").dataset.is = this.#legendKey();
    byId("legend").replaceChildren(...legend(this, Object.keys(phases)));
  }

  #legendKey() { return JSON.stringify([this.by, this.filters.phase, this.model.nodes.size, others(this.model), this.paint.css]); }

  #matching() {
    let n = 0;
    for (const b of this.model.blocks.values()) if (this.matches(b)) n++;
    return n;
  }

  #drawFilters() {
    const f = this.filters, all = this.model.blocks.size, chips = [];
    for (const what of ["node", "phase", "pool"]) {
      if (!f[what]) continue;
      const value = what === "phase" ? phases[f[what]] : f[what];
      chips.push(el("button", { type: "button", class: "chip", "aria-label": `No longer only ${what} ${value}`, onclick: () => this.toggle(what, f[what]) }, `${what} ${value}`));
    }
    if (f.cidrs) chips.push(el("button", { type: "button", class: "chip", "aria-label": "All blocks again", onclick: () => this.filter({}) }, f.label));
    const some = chips.length > 0;
    byId("filters").replaceChildren(...chips, el("span", { id: "count" }, some ? `${this.#matching().toLocaleString("en")} of ${count(all, "block")}` : count(all, "block")));
  }

  #readHash() {
    const q = new URLSearchParams(location.hash.slice(1));
    for (const [what, all] of Object.entries(choices)) if (all.includes(q.get(what))) this.shown[what] = q.get(what);
    for (const what of ["node", "phase", "pool"]) if (q.get(what)) this.filters[what] = q.get(what);
  }

  #saveHash() {
    const q = new URLSearchParams();
    for (const [what, [usual]] of Object.entries(choices)) if (this.shown[what] !== usual) q.set(what, this.shown[what]);
    for (const what of ["node", "phase", "pool"]) if (this.filters[what]) q.set(what, this.filters[what]);
    history.replaceState(null, "", `#${q}`);
  }

  #listen() {
    for (const what of ["by", "layout"]) {
      byId(what).addEventListener("click", (e) => e.target.dataset.value && this.set(what, e.target.dataset.value));
      byId(what).addEventListener("keydown", (e) => {
        const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
        if (!way) return;
        const all = choices[what];
        this.set(what, all[(all.indexOf(this.shown[what]) + way + all.length) % all.length]);
        byId(what).querySelector("[aria-checked=true]").focus();
        e.preventDefault();
      });
    }
    byId("theme").addEventListener("click", () => this.#cycleTheme());
    byId("help").addEventListener("click", () => byId("keys").showModal());
    document.addEventListener("keydown", (e) => this.#key(e));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.set("theme", this.shown.theme));
    addEventListener("resize", () => this.pools.redraw());
    addEventListener("scroll", () => this.byKeys || this.card.hide(), { passive: true });
    addEventListener("hashchange", () => {
      this.shown = { by: "utilisation", layout: "rows", theme: "auto" };
      this.filters = {};
      this.#readHash();
      this.#setTheme();
      this.render();
    });
  }

  #key(e) {
    if (e.key === "Tab") this.byKeys = true;
    if (e.ctrlKey || e.metaKey || e.altKey || byId("keys").open || e.target.matches("input")) return;
    const does = {
      "/": () => this.search.focus(),
      "?": () => byId("keys").showModal(),
      "1": () => this.set("by", "utilisation"),
      "2": () => this.set("by", "node"),
      "3": () => this.set("by", "phase"),
      r: () => this.set("layout", "rows"),
      h: () => this.set("layout", "hilbert"),
      t: () => this.set("layout", "table"),
      d: () => this.#cycleTheme(),
      Escape: () => this.filter({}),
    }[e.key];
    if (!does) return;
    e.preventDefault();
    does();
  }

  /** connect follows the cluster. The browser connects again by itself. */
  #connect() {
    const events = new EventSource("events");
    const on = (name, take) => events.addEventListener(name, (e) => {
      this.#heard = Date.now();
      this.#live("live", "live");
      take?.(JSON.parse(e.data));
    });
    on("beat");
    on("map", (map) => {
      this.model.load(map);
      this.#ready = true;
      this.render();
    });
    on("change", (change) => {
      const cidrs = this.model.apply(change);
      this.card.forget([...cidrs, ...change.gone]);
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.pools.flash(cidrs);
      this.render();
    });
    on("problem", (why) => {
      byId("problem").textContent = why;
      byId("problem").hidden = why === "";
      if (why !== "") this.#live("old", "may be old");
    });
    events.onerror = () => this.#live("old", "cut off: is kubectl cilium-pool map still running?");
    setInterval(() => {
      if (this.#heard && Date.now() - this.#heard > silentAfter) this.#live("old", "cut off: is kubectl cilium-pool map still running?");
    }, 5000);
  }

  #live(state, words) {
    if (state === "live" && !byId("problem").hidden) return;
    const e = byId("live");
    if (e.dataset.state === state && e.textContent === words) return;
    e.dataset.state = state;
    e.textContent = words;
  }
}

new App();
