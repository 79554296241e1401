// The cards of the pools, with their maps.

import { SectionView } from "./section.js";
import { count, el, many, percent } from "./words.js";

export class Pools {
  #main;
  #views = new Map(); // by the section's key
  #drawing = 0;
  #dirty = new Set();
  #structure = "";

  constructor(app, main) {
    this.app = app;
    this.#main = main;
  }

  clear() {
    for (const v of this.#views.values()) v.remove();
    this.#views.clear();
    this.#structure = "";
  }

  /** render brings cards and maps to what the model is. */
  render() {
    const { pools } = this.app.model;
    const structure = JSON.stringify(pools.map((p) => [p.key, p.sections.map((s) => s.key), p.strays !== null]));
    if (structure !== this.#structure) {
      this.clear();
      this.#structure = structure;
      this.#main.replaceChildren(...(pools.length > 0 ? pools.map((p) => this.#card(p)) : [empty()]));
    }
    for (const p of pools) {
      document.getElementById(cardId(p)).querySelector(".about").replaceChildren(...this.#about(p));
      for (const s of sectionsOf(p)) this.#views.get(s.key).set(s);
    }
    this.redraw();
  }

  #card(pool) {
    const views = sectionsOf(pool).map((s) => {
      const v = new SectionView(this.app, s);
      this.#views.set(s.key, v);
      return v.element;
    });
    return el("section", { class: "pool", id: cardId(pool), "aria-label": `pool ${pool.pool}, ${pool.family}` }, el("div", { class: "about" }), el("div", { class: "maps" }, ...views));
  }

  #about(p) {
    const { inService, draining, coolingDown } = p.blocks, assignable = p.assignableBlocks, held = inService + draining + coolingDown;
    const family = { ipv4: "IPv4", ipv6: "IPv6" }[p.family] ?? "";
    const gauge = el("div", { class: "gauge", role: "img", "aria-label": `${inService} in service, ${draining} draining, ${coolingDown} cooling down, of ${many(assignable)} blocks` });
    for (const [phase, n] of [["InService", inService], ["Draining", draining], ["CoolingDown", coolingDown]]) {
      if (n === 0 || assignable === 0) continue;
      const part = el("i", { class: phase });
      part.style.width = `${(100 * n) / assignable}%`;
      gauge.append(part);
    }
    const figure = (n, words) => el("span", {}, el("b", {}, n), ` ${words}`);
    const head = el("div", { class: "head" },
      el("h2", {}, p.pool),
      family && el("span", { class: "kind" }, `${family} · /${p.blockBits} blocks · ${count(p.selectedNodes, "node")}`),
      p.state !== "Ready" && el("span", { class: "state" }, p.state),
      el("p", { class: "figures" },
        figure(held.toLocaleString("en"), `of ${many(assignable)} blocks held`),
        figure(many(p.freeBlocks), "free"),
        held > 0 && figure(percent(p.used, p.addresses), `of ${p.addresses.toLocaleString("en")} addresses in use`)));
    return [head, gauge, p.message ? el("p", { class: "message" }, p.message) : ""];
  }

  /** go moves the cursor to a cell. */
  go(key, cell) {
    const view = this.#views.get(key);
    if (!view) return;
    view.element.scrollIntoView({ block: "nearest" });
    view.cursor = cell;
    view.canvas.focus({ preventScroll: true });
    view.go(cell);
  }

  flash(cidrs) {
    if (cidrs.length > 500) return; // too many to tell apart
    for (const cidr of cidrs) {
      const found = this.app.model.find(this.app.model.blocks.get(cidr).at);
      if (found) this.#views.get(found.section.key)?.flash(found.cell);
    }
  }

  /** drawNow draws all maps, also the ones out of sight. */
  drawNow() {
    for (const v of this.#views.values()) {
      v.visible = true;
      v.draw();
    }
  }

  /** redraw draws one map, or all, once the browser paints next. */
  redraw(view) {
    if (view) this.#dirty.add(view);
    else for (const v of this.#views.values()) this.#dirty.add(v);
    this.#drawing ||= requestAnimationFrame(() => {
      this.#drawing = 0;
      const now = [...this.#dirty];
      this.#dirty.clear();
      for (const v of now) if (v.draw()) this.redraw(v);
    });
  }
}

const sectionsOf = (pool) => (pool.strays ? [...pool.sections, pool.strays] : pool.sections);
const cardId = (pool) => `pool ${pool.key}`.replaceAll(" ", "_");

function empty() {
  return el("p", { class: "empty" }, el("strong", {}, "There is no pool yet"),
    "Blocks appear here as soon as there is one that matches nodes: ", el("code", {}, "kubectl apply -f examples/pools.yaml"));
}
