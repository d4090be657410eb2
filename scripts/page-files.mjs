/** Puts the page's browser files into dist/page/client/: modules without their types, and the rest as it is. Needs the pinned Node.js. */
import { readdirSync, readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { placeFiles } from "./place-files.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const from = join(root, "src/page/client");
const to = join(root, "dist/page/client");

process.removeAllListeners("warning");
const files = readdirSync(from).map((name) => {
  if (!name.endsWith(".ts")) return [name, readFileSync(join(from, name))];
  const text = stripTypeScriptTypes(readFileSync(join(from, name), "utf8"));
  return [name.replace(/ts$/, "js"), text.replaceAll(/(from "\.\/[\w-]+)\.ts"/g, '$1.js"')];
});
placeFiles(to, new Map(files));
