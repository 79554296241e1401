// What pointer, wheel and keys do to one map.

/** listen lets a view follow them. */
export function listen(view) {
  listenToPointer(view);
  const c = view.canvas;
  c.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    view.zoom(e.deltaY < 0 ? 1 : -1, local(view, e));
  }, { passive: false });
  c.addEventListener("keydown", (e) => onKey(view, e));
  c.addEventListener("focus", () => {
    if (view.app.byKeys) view.go(view.cursor);
  });
  c.addEventListener("blur", () => view.app.point(null));
}

/** local is where an event is, in pixels of the screen, past the gutter. */
function local({ port }, e) { return [e.offsetX * port.unit - port.gutter, e.offsetY * port.unit]; }

function listenToPointer(view) {
  const { canvas: c, port, app } = view;
  let from = null, dragged = false;
  c.addEventListener("pointermove", (e) => {
    if (from) {
      dragged ||= Math.hypot(e.clientX - from.x, e.clientY - from.y) > 4;
      view.move([from.offset[0] - (e.clientX - from.x) * port.unit, from.offset[1] - (e.clientY - from.y) * port.unit]);
      c.classList.toggle("dragged", dragged);
      if (dragged) return app.point(null);
    }
    pointAt(view, local(view, e), e);
  });
  c.addEventListener("pointerleave", () => pointAt(view, [-1, -1], null));
  c.addEventListener("pointerdown", (e) => {
    pointAt(view, local(view, e), e); // a finger comes without a move before
    dragged = false;
    if (port.isZoomed) {
      from = { x: e.clientX, y: e.clientY, offset: port.offset };
      c.setPointerCapture(e.pointerId);
    }
  });
  c.addEventListener("pointerup", () => {
    from = null;
    c.classList.remove("dragged");
  });
  c.addEventListener("click", () => {
    if (!dragged && view.pointed >= 0) choose(view, view.pointed);
  });
}

function pointAt(view, point, e) {
  const { app, section } = view, cell = view.port.hit(point);
  if (e) app.byKeys = false;
  if (cell === view.pointed && cell < 0) return;
  view.pointed = cell;
  if (cell >= 0) view.cursor = cell;
  view.canvas.classList.toggle("held", cell >= 0 && section.cells[cell] !== undefined);
  if (cell < 0) return app.point(null);
  app.point(view, cell, { left: e.clientX, right: e.clientX, top: e.clientY, bottom: e.clientY }, false);
}

function choose(view, cell) {
  const b = view.section.cells[cell];
  if (b) view.app.toggle("node", b.node);
}

function onKey(view, e) {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const cell = keyed(view, e.key);
  if (cell !== null) {
    view.app.byKeys = true;
    view.go(cell);
  } else if (e.key === "Enter" || e.key === " ") choose(view, view.cursor);
  else if (e.key === "+" || e.key === "=") zoomAtCursor(view, 1);
  else if (e.key === "-") zoomAtCursor(view, -1);
  else if (e.key === "0") view.zoom(0);
  else return;
  e.preventDefault();
  e.stopPropagation();
}

function zoomAtCursor(view, way) {
  const [x, y, c] = view.port.rect(view.cursor);
  view.zoom(way, [x + c / 2, y + c / 2]);
  view.reveal(view.cursor);
}

/** keyed is the cell that a key leads to; null if it is no such key. */
function keyed(view, key) {
  const { port, cursor } = view, p = port.place(cursor), x = p % port.columns, y = Math.floor(p / port.columns), last = view.size - 1;
  const rows = view.app.layout === "rows";
  const to = (nx, ny) => {
    const cell = port.cellAt(nx, ny);
    return cell < 0 ? cursor : cell;
  };
  switch (key) {
    case "ArrowUp": return to(x, y - 1);
    case "ArrowDown": return to(x, y + 1);
    case "ArrowLeft": return rows ? Math.max(0, cursor - 1) : to(x - 1, y);
    case "ArrowRight": return rows ? Math.min(last, cursor + 1) : to(x + 1, y);
    case "Home": return 0;
    case "End": return last;
    case "n": return held(view, 1);
    case "p": return held(view, -1);
    default: return null;
  }
}

/** held is the next block that is shown, before or after the cursor. */
function held({ section: { cells }, cursor, app }, way) {
  const here = cells[cursor];
  for (let c = cursor + way; c >= 0 && c < cells.length; c += way) {
    if (cells[c] && cells[c] !== here && app.matches(cells[c])) return c;
  }
  return cursor;
}
