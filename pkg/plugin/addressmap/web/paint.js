// Colours of cells, and how they are drawn.

import { level } from "./words.js";

const names = [
  "page", "surface", "text", "muted", "line", "accent", "free", "reserved", "closed", "InService", "Draining",
  "CoolingDown", "Conflict", "ramp0", "ramp1", "ramp2", "ramp3", "ramp4", "ramp5", "node0", "node1", "node2", "node3",
  "node4", "node5", "node6", "node7", "node8",
];
const nodeColours = 9;

/** Paint has the colours of the present theme. */
export class Paint {
  css = {};
  #pixel = {}; // as ImageData holds them
  #faded = {};
  #ink = {};
  #patterns = {};

  constructor() {
    const style = getComputedStyle(document.documentElement);
    for (const n of names) this.css[n] = style.getPropertyValue(`--${n}`).trim();
    const free = channels(this.css.free);
    for (const n of names) {
      const c = channels(this.css[n]);
      this.#pixel[n] = pixel(c);
      this.#faded[n] = pixel(c.map((v, i) => Math.round(free[i] + (v - free[i]) * 0.14)));
      this.#ink[n] = 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] > 140 ? "#10161d" : "#ffffff";
    }
  }

  pixel(name, faded) { return faded ? this.#faded[name] : this.#pixel[name]; }
  ink(name) { return this.#ink[name]; }

  /** nameOf is the name of a block's colour. */
  nameOf(block, by, nodes) {
    if (by === "node") return `node${nodes.get(block.node) % nodeColours}`;
    if (by === "phase") return block.phase;
    return `ramp${level(block)}`;
  }

  /** pattern lies over blocks on their way out, so that colour is not all that tells. */
  pattern(ctx, phase, unit) {
    const key = `${phase} ${unit}`;
    this.#patterns[key] ??= ctx.createPattern(this.#tile(phase, unit), "repeat");
    return this.#patterns[key];
  }

  #tile(phase, unit) {
    const side = 6 * unit, c = new OffscreenCanvas(side, side), ctx = c.getContext("2d");
    ctx.fillStyle = ctx.strokeStyle = this.css.surface;
    ctx.globalAlpha = 0.8;
    if (phase === "Draining") {
      ctx.lineWidth = 1.7 * unit;
      for (const d of [-side, 0, side]) {
        ctx.beginPath();
        ctx.moveTo(d - unit, side + unit);
        ctx.lineTo(d + side + unit, -unit);
        ctx.stroke();
      }
    } else {
      ctx.beginPath();
      ctx.arc(side / 2, side / 2, 1.35 * unit, 0, 7);
      ctx.fill();
    }
    return c;
  }

  /** swatch draws one cell, for a legend. */
  swatch(name, phase) {
    const unit = window.devicePixelRatio || 1, c = document.createElement("canvas");
    c.width = c.height = 14 * unit;
    const ctx = c.getContext("2d");
    ctx.fillStyle = this.css[name];
    ctx.fillRect(0, 0, c.width, c.height);
    if (phase && phase !== "InService") {
      ctx.fillStyle = this.pattern(ctx, phase, unit);
      ctx.fillRect(0, 0, c.width, c.height);
    }
    return c;
  }
}

function channels(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

// Browsers run on little-endian machines alone.
const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
