// A map in a page that nobody serves: the plan is a part of the page.

import { legend } from "./legend.js";
import { Model } from "./model.js";
import { Paint } from "./paint.js";
import { Pools } from "./pools.js";
import { phases } from "./words.js";

const byId = (id) => document.getElementById(id);

class Still {
  model = new Model();
  by = "utilisation";
  layout = "rows";
  filters = {}; // a node or a phase
  lit = null;
  byKeys = false;
  #dark = matchMedia("(prefers-color-scheme: dark)");

  constructor() {
    this.model.load(JSON.parse(byId("map").textContent));
    this.pools = new Pools(this, byId("pools"));
    this.#dark.addEventListener("change", () => this.render());
    addEventListener("keydown", (e) => {
      if (e.key === "Tab") this.byKeys = true;
      if (e.key === "Escape") this.toggle();
    });
    addEventListener("resize", () => this.pools.redraw());
    addEventListener("beforeprint", () => {
      this.render("light");
      this.pools.drawNow();
    });
    addEventListener("afterprint", () => this.render());
    this.render();
  }

  render(theme = this.#dark.matches ? "dark" : "light") {
    document.documentElement.dataset.theme = theme;
    this.paint = new Paint();
    const shown = Object.keys(phases).filter((phase) => this.model.sorted.some((b) => b.phase === phase));
    byId("legend").replaceChildren(...legend(this, shown));
    this.pools.render();
  }

  matches(b) { return Object.entries(this.filters).every(([what, value]) => b[what] === value); }

  /** toggle shows only blocks of a node or in a phase, or all again. */
  toggle(what, value) {
    this.filters = !what || this.filters[what] === value ? {} : { [what]: value };
    this.render();
  }

  point(view, cell) {
    this.lit = view?.section.cells[cell]?.node ?? null;
    byId("said").textContent = view ? view.say(cell) : "";
    this.pools.redraw();
  }

  redraw(view) { this.pools.redraw(view); }
}

new Still();
