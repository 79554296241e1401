// How one map is drawn, from the picture of its cells up to what is marked on it.
// All sizes are in pixels of the screen.

import { cellAt, format } from "./address.js";

const flashFor = 1400; // milliseconds
const sans = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const mono = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';

/** draw draws all of a view. It reports whether something still moves. */
export function draw(view) {
  const { port, app, section } = view, c = port.cell;
  const ctx = view.canvas.getContext("2d");
  ctx.clearRect(0, 0, view.canvas.width, view.canvas.height);
  if (port.gutter > 0) drawGutter(ctx, view);
  ctx.save();
  ctx.translate(port.gutter, 0);
  ctx.beginPath();
  ctx.rect(0, 0, port.wide, port.high);
  ctx.clip();
  const [x0, y0, x1, y1] = port.window(), [ox, oy] = port.offset;
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(view.bitmap, x0, y0, x1 - x0, y1 - y0, x0 * c - ox, y0 * c - oy, (x1 - x0) * c, (y1 - y0) * c);
  if (c >= 4 * port.unit) drawGaps(ctx, view);
  if (c >= 9 * port.unit) drawBlocks(ctx, view);
  if (app.layout === "hilbert" && !section.stray) drawSquares(ctx, view);
  const moves = drawFlashes(ctx, view);
  drawMarks(ctx, view);
  ctx.restore();
  return moves;
}

/** paintCells makes a picture with a pixel for each cell. */
export function paintCells({ port, app, section: s }) {
  const { paint, by, model } = app;
  const picture = new OffscreenCanvas(port.columns, port.rows), ctx = picture.getContext("2d");
  const data = ctx.createImageData(port.columns, port.rows), pixels = new Uint32Array(data.data.buffer);
  if (!s.stray) pixels.fill(paint.pixel(s.cordoned || s.closedBy ? "closed" : "free", false));
  for (const c of s.reserved) pixels[port.place(c)] = paint.pixel("reserved", false);
  s.cells.forEach((b, c) => {
    pixels[port.place(c)] = paint.pixel(paint.nameOf(b, by, model.nodes), !app.matches(b));
  });
  ctx.putImageData(data, 0, 0);
  return picture;
}

function drawGutter(ctx, { port, app }) {
  const { unit, cell } = port, [, y0, , y1] = port.window();
  ctx.fillStyle = app.paint.css.muted;
  ctx.font = `${11 * unit}px ${mono}`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const step = 2 ** Math.max(0, Math.ceil(Math.log2((16 * unit) / cell)));
  for (let row = Math.ceil(y0 / step) * step; row < y1; row += step) {
    const y = row * cell - port.offset[1] + Math.max(6 * unit, Math.min(cell / 2, 10 * unit));
    ctx.fillText(port.labelOf(row), port.gutter - 10 * unit, y);
  }
}

const gapOf = (port) => Math.max(1, Math.round(port.unit));

function drawGaps(ctx, { port, app }) {
  const { cell, offset } = port, [x0, y0, x1, y1] = port.window(), gap = gapOf(port);
  ctx.fillStyle = app.paint.css.surface;
  for (let x = x0; x < x1; x++) ctx.fillRect((x + 1) * cell - offset[0] - gap, 0, gap, port.high);
  for (let y = y0; y < y1; y++) ctx.fillRect(0, (y + 1) * cell - offset[1] - gap, port.wide, gap);
}

/** drawBlocks draws what has room in larger cells: patterns, frames and text. */
function drawBlocks(ctx, view) {
  const { port, app, section } = view, { cell, unit, offset } = port, [x0, y0, x1, y1] = port.window(), side = cell - gapOf(port);
  ctx.font = `${11 * unit}px ${sans}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (let y = y0; y < y1; y++) {
    for (let x = x0; x < x1; x++) {
      const b = section.cells[port.cellAt(x, y)];
      if (!b || !app.matches(b)) continue;
      const px = x * cell - offset[0], py = y * cell - offset[1];
      if (b.phase !== "InService") {
        ctx.fillStyle = app.paint.pattern(ctx, b.phase, unit);
        ctx.fillRect(px, py, side, side);
      }
      if (b.conflict) {
        ctx.strokeStyle = app.paint.css.Conflict;
        ctx.lineWidth = 2.5 * unit;
        ctx.strokeRect(px + ctx.lineWidth / 2, py + ctx.lineWidth / 2, side - ctx.lineWidth, side - ctx.lineWidth);
      }
      if (cell >= 22 * unit && b.phase === "InService") drawText(ctx, view, b, px, py, side);
    }
  }
}

function drawText(ctx, { port: { unit }, app, section }, b, px, py, side) {
  const node = b.node.slice(section.pool.cut);
  ctx.fillStyle = app.paint.ink(app.paint.nameOf(b, app.by, app.model.nodes));
  const lines = side < 84 * unit ? [app.by === "utilisation" ? String(b.used) : node] : [b.cidr.split("/")[0], node, `${b.used} of ${b.addresses}`];
  lines.forEach((line, i) => {
    if (ctx.measureText(line).width < side - 4 * unit) ctx.fillText(line, px + side / 2, py + side / 2 + (i - (lines.length - 1) / 2) * 15 * unit);
  });
}

/** drawSquares draws the CIDRs that a Hilbert map is made of. */
function drawSquares(ctx, view) {
  const { port, app } = view, { cell, unit, rows, columns, offset } = port, squares = Math.max(4, rows / 4);
  if (squares >= rows) return;
  ctx.strokeStyle = app.paint.css.muted;
  ctx.lineWidth = unit;
  const half = gapOf(port) / 2;
  ctx.beginPath();
  for (let x = squares; x < columns; x += squares) {
    const px = x * cell - offset[0] - half;
    ctx.moveTo(px, 0);
    ctx.lineTo(px, port.high);
  }
  for (let y = squares; y < rows; y += squares) {
    const py = y * cell - offset[1] - half;
    ctx.moveTo(0, py);
    ctx.lineTo(port.wide, py);
  }
  ctx.stroke();
  if (squares * cell >= 130 * unit) nameSquares(ctx, view, squares);
}

function nameSquares(ctx, { port, app, section }, squares) {
  const { cell, unit, offset } = port;
  ctx.font = `${11 * unit}px ${mono}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.lineJoin = "round";
  for (let y = 0; y < port.rows; y += squares) {
    for (let x = 0; x < port.columns; x += squares) {
      const first = Math.floor(port.cellAt(x, y) / (squares * squares)) * squares * squares;
      const text = `${format(cellAt(section.at, section.pool.blockBits, first))}/${section.pool.blockBits - 2 * Math.log2(squares)}`;
      // Text in cells goes before.
      if (cell >= 22 * unit && [0, 1, 2, 3].some((i) => section.cells[port.cellAt(x + i, y + squares - 1)])) continue;
      const px = x * cell - offset[0] + 6 * unit, py = (y + squares) * cell - offset[1] - 8 * unit;
      ctx.strokeStyle = app.paint.css.surface;
      ctx.lineWidth = 4 * unit;
      ctx.strokeText(text, px, py);
      ctx.fillStyle = app.paint.css.text;
      ctx.fillText(text, px, py);
    }
  }
}

/** drawFlashes draws what has just changed. It reports whether it goes on. */
function drawFlashes(ctx, { port, app, section, flashes }) {
  const now = performance.now();
  for (const [cell, from] of flashes) {
    const part = (now - from) / flashFor;
    if (part >= 1 || !section.cells[cell]) {
      flashes.delete(cell);
      continue;
    }
    const [x, y, c] = port.rect(cell), grow = (1 - part) * 7 * port.unit;
    ctx.globalAlpha = 1 - part;
    ctx.strokeStyle = app.paint.css.accent;
    ctx.lineWidth = 2.5 * port.unit;
    ctx.strokeRect(x - grow, y - grow, c + 2 * grow, c + 2 * grow);
    ctx.globalAlpha = 1;
  }
  return flashes.size > 0;
}

/** drawMarks frames what is pointed at, and the other blocks of its node. */
function drawMarks(ctx, view) {
  const { port, app, section } = view, focused = document.activeElement === view.canvas && app.byKeys;
  const marked = focused ? view.cursor : view.pointed;
  if (app.lit && port.cell >= 5 * port.unit) {
    section.cells.forEach((b, c) => b.node === app.lit && c !== marked && drawFrame(ctx, view, c, 1.5));
  }
  if (marked >= 0 && marked < view.size) drawFrame(ctx, view, marked, 2.5);
}

function drawFrame(ctx, { port, app }, cell, wide) {
  const { unit } = port, [x, y, c] = port.rect(cell), { css } = app.paint, gap = gapOf(port);
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
