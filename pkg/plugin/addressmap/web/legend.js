// What the colours mean.

import { el, phases, ramp } from "./words.js";

/** legend is an item for each colour of a map, with a button for each of some phases. */
export function legend(app, shown) {
  const { paint, by } = app, items = [[paint.swatch("free"), "free"]];
  let base = "ramp2";
  if (by === "utilisation") ramp.forEach((label, i) => items.push([paint.swatch(`ramp${i}`), label]));
  if (by === "node") {
    base = "node0";
    items.push([paint.swatch("node0"), `a colour per node, in turn (${app.model.nodes.size})`]);
  }
  const list = items.map(([c, label]) => el("li", {}, el("span", {}, c, label)));
  const rest = { reserved: "reserved", closed: "no new blocks" };
  for (const what of others(app.model)) list.push(el("li", {}, el("span", {}, paint.swatch(what), rest[what])));
  for (const phase of shown) {
    if (phase === "InService" && by !== "phase") continue;
    const label = phases[phase], c = paint.swatch(by === "phase" ? phase : base, phase);
    list.push(el("li", {}, el("button", { type: "button", "aria-pressed": String(app.filters.phase === phase), title: `Only blocks that are ${label}`, onclick: () => app.toggle("phase", phase) }, c, label)));
  }
  return list;
}

/** others are the colours of cells without a block that there are, beside free. */
export function others({ pools }) {
  return [
    pools.some((p) => p.reserved?.length > 0) && "reserved",
    pools.some((p) => p.sections.some((s) => s.cordoned || s.closedBy)) && "closed",
  ].filter(Boolean);
}
