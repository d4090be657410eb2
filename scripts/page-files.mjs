/** Puts what browsers get of the page into dist/page/client/: modules without their types, and the rest as it is. Needs the pinned Node.js. */
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { emptyBeside, swap } from "./swap-folder.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const from = join(root, "src/page/client");
const to = join(root, "dist/page/client");

process.removeAllListeners("warning");
const beside = emptyBeside(to);
for (const name of readdirSync(from)) {
  if (!name.endsWith(".ts")) cpSync(join(from, name), join(beside, name));
  else {
    const text = stripTypeScriptTypes(readFileSync(join(from, name), "utf8"));
    writeFileSync(join(beside, name.replace(/ts$/, "js")), text.replaceAll(/(from "\.\/[\w-]+)\.ts"/g, '$1.js"'));
  }
}
swap(beside, to);
