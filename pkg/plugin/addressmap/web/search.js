// Search: an address and a node are found here, users of addresses by the server.

import { format, parse } from "./address.js";
import { el } from "./words.js";

const mostNodes = 8;
const pause = 120; // milliseconds before the server is asked

export class Search {
  #input = document.getElementById("search");
  #list = document.getElementById("found");
  #options = [];
  #at = -1;
  #timer = 0;
  #turn = 0;

  constructor(app) {
    this.app = app;
    this.#input.addEventListener("input", () => this.#search());
    this.#input.addEventListener("keydown", (e) => this.#key(e));
    this.#input.addEventListener("blur", () => this.#close());
    this.#input.addEventListener("focus", () => this.#search());
  }

  focus() {
    this.#input.focus();
    this.#input.select();
  }

  #search() {
    clearTimeout(this.#timer);
    const text = this.#input.value.trim(), turn = ++this.#turn;
    if (text === "") return this.#close();
    const here = [...this.#addresses(text), ...this.#nodes(text)];
    this.#show(here, false);
    this.#timer = setTimeout(async () => {
      let users = [];
      try {
        const answer = await fetch(`search?user=${encodeURIComponent(text)}`);
        users = await answer.json();
      } catch {
        return; // cut off: the page says so
      }
      if (turn === this.#turn) this.#show([...here, ...users.map((u) => this.#user(u))], true);
    }, pause);
  }

  #addresses(text) {
    const prefix = parse(text);
    if (!prefix) return [];
    const found = this.app.model.find(prefix), name = format(prefix.bytes);
    if (!found) return [{ kind: "address", what: name, where: "in no pool", none: true }];
    const where = found.block ? `${found.block.cidr}, ${found.block.node}` : `free, in pool ${found.pool.pool}`;
    return [{
      kind: "address", what: name, where,
      choose: () => {
        this.app.only(found.block ? [found.block.cidr] : null, found.block ? `address ${name}` : "");
        this.app.jump(found);
      },
    }];
  }

  #nodes(text) {
    const want = text.toLowerCase(), held = new Map();
    for (const b of this.app.model.blocks.values()) {
      if (b.node.toLowerCase().includes(want)) held.set(b.node, (held.get(b.node) ?? 0) + 1);
    }
    const names = [...held.keys()].sort((a, b) => a.length - b.length || a.localeCompare(b)).slice(0, mostNodes);
    return names.map((n) => ({
      kind: "node", what: n, where: `${held.get(n)} block${held.get(n) === 1 ? "" : "s"}`,
      choose: () => {
        this.app.filter({ node: n });
        this.app.jumpToFirst();
      },
    }));
  }

  #user(u) {
    return {
      kind: u.name.includes("/") ? "pod" : "use", what: u.name, where: `${u.ip}, ${u.node}`,
      choose: () => {
        const prefix = parse(u.ip), found = prefix && this.app.model.find(prefix);
        this.app.only([u.block], `${u.name}`);
        if (found) this.app.jump(found);
      },
    };
  }

  #show(options, complete) {
    this.#options = options.filter((o) => o.choose);
    this.#at = Math.min(this.#at, this.#options.length - 1);
    const shown = options.length > 0 || !complete ? options : [{ kind: "", what: "Nothing found.", where: "", none: true }];
    let n = 0;
    this.#list.replaceChildren(...shown.map((o) => {
      const parts = [el("span", { class: "kind" }, o.kind), el("span", { class: "what" }, o.what), el("span", { class: "where" }, o.where)];
      if (!o.choose) return el("li", {}, ...parts);
      const i = n++;
      return el("li", { role: "option", id: `found-${i}`, "aria-selected": String(i === this.#at), onpointerdown: (e) => {
        e.preventDefault();
        this.#choose(i);
      } }, ...parts);
    }));
    this.#list.hidden = shown.length === 0;
    this.#input.setAttribute("aria-expanded", String(shown.length > 0));
    if (this.#at >= 0) this.#input.setAttribute("aria-activedescendant", `found-${this.#at}`);
    else this.#input.removeAttribute("aria-activedescendant");
  }

  #move(by) {
    if (this.#options.length === 0) return;
    this.#at = (this.#at + by + this.#options.length) % this.#options.length;
    [...this.#list.querySelectorAll("[role=option]")].forEach((o, i) => o.setAttribute("aria-selected", String(i === this.#at)));
    this.#input.setAttribute("aria-activedescendant", `found-${this.#at}`);
    document.getElementById(`found-${this.#at}`)?.scrollIntoView({ block: "nearest" });
  }

  #choose(i) {
    const option = this.#options[i];
    if (!option) return;
    this.app.byKeys = true;
    this.#close();
    option.choose();
  }

  #close() {
    clearTimeout(this.#timer);
    this.#turn++;
    this.#at = -1;
    this.#list.hidden = true;
    this.#input.setAttribute("aria-expanded", "false");
    this.#input.removeAttribute("aria-activedescendant");
  }

  #key(e) {
    if (e.key === "ArrowDown") this.#move(1);
    else if (e.key === "ArrowUp") this.#move(-1);
    else if (e.key === "Enter") this.#choose(Math.max(0, this.#at));
    else if (e.key === "Escape") {
      if (this.#input.value === "") this.app.filter({});
      this.#input.value = "";
      this.#close();
    } else return;
    e.preventDefault();
    e.stopPropagation();
  }
}
