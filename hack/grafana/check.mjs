// Holds a dashboard to Grafana's own schema: each part of it must have the type
// that @grafana/schema gives it, with no field more.
//
//   node check.mjs DASHBOARD.json
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const file = process.argv[2];
if (!file) {
  console.error("usage: node check.mjs DASHBOARD.json");
  process.exit(2);
}
const require = createRequire(import.meta.url);
const here = import.meta.dirname;
const raw = "./node_modules/@grafana/schema/dist/types/raw";
const dashboard = JSON.parse(readFileSync(file, "utf8"));

// One line of TypeScript for each part, and what it is.
const lines = [];
function line(what, text) {
  lines.push({ what, text });
}
function must(what, type, value) {
  line(what, `export const p${lines.length}: Plain<${type}> = ${JSON.stringify(value)};`);
}

line("schema", `import type * as g from "${raw}/dashboard/x/types.gen";`);
line("schema", `import type { GraphFieldConfig } from "@grafana/schema";`);
// The schema's enums are strings or numbers in JSON.
line("schema", "type Plain<T> = T extends string ? (string extends T ? string : `${T}`)" +
  " : T extends number | boolean | null | undefined ? T : T extends (infer U)[] ? Plain<U>[]" +
  " : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;");

must("the dashboard", "g.Dashboard", dashboard);
for (const v of dashboard.templating.list) must(`variable ${v.name}`, "g.VariableModel", v);
for (const p of dashboard.panels) {
  const what = `panel ${p.title}`;
  must(what, p.type === "row" ? "g.RowPanel" : "g.Panel", p);
  if (p.type === "row") continue;
  must(`${what}: options`, `Partial<import("${raw}/composable/${p.type}/panelcfg/x/types.gen").Options>`, p.options);
  if (p.fieldConfig.defaults.custom) must(`${what}: custom`, "GraphFieldConfig", p.fieldConfig.defaults.custom);
}

writeFileSync(join(here, "dashboard.ts"), lines.map((l) => l.text + "\n").join(""));
const tsc = join(dirname(require.resolve("typescript/package.json")), "bin/tsc");
try {
  execFileSync(process.execPath, [tsc, "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022",
    "--module", "esnext", "--moduleResolution", "bundler", "dashboard.ts"], { cwd: here, stdio: "pipe" });
} catch (error) {
  for (const said of String(error.stdout).trim().split("\n")) {
    const [, number, message] = said.match(/^dashboard\.ts\((\d+),\d+\): (.*)/) ?? [];
    console.error(number ? `${lines[number - 1].what}: ${message.slice(0, 300)}` : said);
  }
  process.exit(1);
}
const { version } = require("@grafana/schema/package.json");
console.log(`${lines.length - 3} parts of the dashboard have the types of @grafana/schema ${version}`);
