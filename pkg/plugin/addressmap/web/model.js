// What there is to show: pools, their sections with a block or nothing in each
// cell, and blocks that lie in no section.

import { cellAt, cellOf, compare, contains, format, parse } from "./address.js";

export class Model {
  cluster = "";
  pools = [];
  blocks = new Map(); // by CIDR
  nodes = new Map(); // the number of each node, which chooses its colour
  #sorted = null;

  load(map) {
    this.cluster = map.cluster;
    this.blocks.clear();
    this.#take(map.blocks);
    const names = [...new Set(map.blocks.map((b) => b.node))].sort();
    for (const n of names) this.#number(n);
    this.#arrange(map.pools);
  }

  /** apply returns the CIDRs of blocks that are new or other than before. */
  apply(change) {
    for (const cidr of change.gone) this.blocks.delete(cidr);
    this.#take(change.set);
    for (const b of change.set) this.#number(b.node);
    this.#arrange(change.pools);
    return change.set.map((b) => b.cidr);
  }

  /** sorted are all blocks by address. */
  get sorted() {
    this.#sorted ??= [...this.blocks.values()].sort((a, b) => compare(a.at.bytes, b.at.bytes) || a.at.bits - b.at.bits);
    return this.#sorted;
  }

  /** find is where an address or a prefix lies: {pool, section, cell, block}. */
  find(prefix) {
    let free = null;
    for (const pool of this.pools) {
      for (const s of pool.sections) {
        if (!contains(s.at, prefix)) continue;
        const cell = cellOf(s.at, pool.blockBits, prefix.bytes);
        const found = { pool, section: s, cell, block: s.cells[cell] };
        if (found.block) return found;
        free ??= found;
      }
      const stray = pool.strays?.cells.findIndex((b) => contains(b.at, prefix));
      if (stray >= 0) return { pool, section: pool.strays, cell: stray, block: pool.strays.cells[stray] };
    }
    return free;
  }

  #take(blocks) {
    for (const b of blocks) {
      b.at = parse(b.cidr);
      this.blocks.set(b.cidr, b);
    }
  }

  #number(node) {
    if (!this.nodes.has(node)) this.nodes.set(node, this.nodes.size);
  }

  /** arrange puts blocks into the cells of their pools. */
  #arrange(pools) {
    this.#sorted = null;
    const byKey = new Map();
    this.pools = pools.map((given) => {
      const pool = { ...given, key: `${given.pool} ${given.family}`, strays: null, names: new Set() };
      pool.sections = given.sections.map((s) => newSection(pool, s));
      byKey.set(pool.key, pool);
      return pool;
    });
    for (const b of this.sorted) {
      const pool = byKey.get(`${b.pool} ${b.at.bytes.length === 4 ? "ipv4" : "ipv6"}`);
      if (pool) put(pool, b);
    }
    for (const pool of this.pools) pool.cut = commonLength(pool.names);
  }
}

function newSection(pool, given) {
  const prefix = parse(given.cidr);
  const bits = Math.max(0, pool.blockBits - prefix.bits);
  const s = { ...given, key: `${pool.key} ${given.cidr}`, pool, at: prefix, bits, cells: new Array(2 ** bits), held: 0, reserved: new Set() };
  for (const text of pool.reserved ?? []) {
    const r = parse(text);
    const all = contains(r, prefix);
    if (r.bits > pool.blockBits || !(all || contains(prefix, r))) continue;
    const first = all ? 0 : cellOf(prefix, pool.blockBits, r.bytes);
    const count = all ? 2 ** bits : 2 ** (pool.blockBits - r.bits);
    for (let c = first; c < first + count; c++) s.reserved.add(c);
  }
  return s;
}

function put(pool, block) {
  pool.names.add(block.node);
  const s = pool.sections.find((sec) => contains(sec.at, block.at));
  if (!s) {
    pool.strays ??= { key: `${pool.key} strays`, pool, stray: true, cells: [], held: 0, reserved: new Set() };
    pool.strays.cells.push(block);
    pool.strays.held++;
    return;
  }
  const first = cellOf(s.at, pool.blockBits, block.at.bytes);
  const count = 2 ** Math.max(0, pool.blockBits - block.at.bits);
  for (let c = first; c < first + count; c++) s.cells[c] = block;
  s.held++;
}

/** cidrOf is what a cell of a section is called. */
export function cidrOf(section, cell) {
  if (section.stray) return section.cells[cell].cidr;
  return `${format(cellAt(section.at, section.pool.blockBits, cell))}/${section.pool.blockBits}`;
}

/** commonLength is how much of their names all nodes share, up to a dash or dot. */
function commonLength(names) {
  let common = null;
  for (const n of names) {
    common ??= n;
    while (!n.startsWith(common)) common = common.slice(0, -1);
  }
  return Math.max((common ?? "").lastIndexOf("-"), (common ?? "").lastIndexOf(".")) + 1;
}
