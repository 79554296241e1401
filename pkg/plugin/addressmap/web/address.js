// Addresses as bytes: four of them, or sixteen.

/** parse reads "10.20.0.0/27" or "fd00::1"; null if it is neither. */
export function parse(text) {
  const [address, length, ...rest] = text.trim().split("/");
  const bytes = address.includes(":") ? parse6(address) : parse4(address);
  if (!bytes || rest.length > 0) return null;
  const most = bytes.length * 8;
  if (length === undefined) return { bytes, bits: most };
  if (!/^\d{1,3}$/.test(length) || Number(length) > most) return null;
  return { bytes, bits: Number(length) };
}

function parse4(text) {
  const parts = text.split(".");
  if (parts.length !== 4 || !parts.every((p) => /^\d{1,3}$/.test(p) && Number(p) < 256)) return null;
  return parts.map(Number);
}

function parse6(text) {
  const halves = text.toLowerCase().split("::");
  if (halves.length > 2) return null;
  const groups = halves.map((h) => (h === "" ? [] : h.split(":")));
  const missing = 8 - groups.flat().length;
  if (halves.length === 1 ? missing !== 0 : missing < 1) return null;
  const all = halves.length === 1 ? groups[0] : [...groups[0], ...Array(missing).fill("0"), ...groups[1]];
  if (!all.every((g) => /^[0-9a-f]{1,4}$/.test(g))) return null;
  return all.flatMap((g) => [parseInt(g, 16) >> 8, parseInt(g, 16) & 255]);
}

/** format writes an address in its canonical form (RFC 5952). */
export function format(bytes) {
  if (bytes.length === 4) return bytes.join(".");
  const groups = [];
  for (let i = 0; i < 16; i += 2) groups.push(((bytes[i] << 8) | bytes[i + 1]).toString(16));
  let from = -1, length = 1;
  for (let i = 0; i < 8; i++) {
    let n = 0;
    while (i + n < 8 && groups[i + n] === "0") n++;
    if (n > length) [from, length] = [i, n];
  }
  if (from < 0) return groups.join(":");
  return `${groups.slice(0, from).join(":")}::${groups.slice(from + length).join(":")}`;
}

const bit = (bytes, i) => (bytes[i >> 3] >> (7 - (i & 7))) & 1;

/** contains reports whether all of the prefix inner lies in outer. */
export function contains(outer, inner) {
  if (outer.bytes.length !== inner.bytes.length || outer.bits > inner.bits) return false;
  for (let i = 0; i < outer.bits; i++) if (bit(outer.bytes, i) !== bit(inner.bytes, i)) return false;
  return true;
}

/** cellOf is the number of the cell of length bits that an address lies in. */
export function cellOf(section, bits, bytes) {
  let n = 0;
  for (let i = section.bits; i < bits; i++) n = n * 2 + bit(bytes, i);
  return n;
}

/** cellAt is the reverse of cellOf: the first address of a cell. */
export function cellAt(section, bits, cell) {
  const bytes = section.bytes.slice();
  for (let i = bits - 1; i >= section.bits; i--) {
    if (cell & 1) bytes[i >> 3] |= 1 << (7 - (i & 7));
    cell >>= 1;
  }
  return bytes;
}

/** compare sorts addresses: IPv4 first. */
export function compare(a, b) {
  if (a.length !== b.length) return a.length - b.length;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] - b[i];
  return 0;
}
