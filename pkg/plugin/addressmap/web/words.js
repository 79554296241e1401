// What people read.

export const phases = { InService: "in service", Draining: "draining", CoolingDown: "cooling down" };

export const ramp = ["idle", "to 25%", "to 50%", "to 75%", "below 100%", "full"];

/** level is the place of a block on the ramp. */
export function level(block) {
  if (block.used <= 0 || block.addresses <= 0) return 0;
  if (block.used >= block.addresses) return 5;
  return 1 + Math.floor((4 * block.used - 1) / block.addresses);
}

/** age is how long ago a time was, as kubectl writes it. */
export function age(since) {
  const s = Math.max(0, Math.floor((Date.now() - Date.parse(since)) / 1000));
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (m < 180) return m < 10 && s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  if (h < 48) return h < 8 && m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  return d < 8 && h % 24 ? `${d}d${h % 24}h` : `${d}d`;
}

/** many writes large counts as powers of two, as those of IPv6 are. */
export const many = (n) => (n < 2 ** 20 ? n.toLocaleString("en") : `2^${Math.floor(Math.log2(n))}`);

export const count = (n, one) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;

export const percent = (part, whole) => (whole > 0 ? `${Math.ceil((100 * part) / whole)}%` : "–");

/** el makes an element with properties, attributes and children. */
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") e.className = value;
    else if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}
