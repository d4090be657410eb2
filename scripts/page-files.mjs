/** The files that a browser loads: the client with its libraries in one module, a document, a style sheet and a picture. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { placeFiles } from "./place-files.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const from = join(root, "src/tools/page/client");

/** By name. */
export async function pageFiles() {
  const { build } = await import("esbuild");
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: [join(from, "main.ts")],
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2024",
    write: false,
    logLevel: "warning",
  });
  const others = readdirSync(from).filter((name) => !name.endsWith(".ts"));
  return new Map([
    ...others.map((name) => [name, readFileSync(join(from, name))]),
    ["main.js", Buffer.from(outputFiles[0].contents)],
    [
      "licences.txt",
      Buffer.concat(["preact", "htm"].map((name) => readFileSync(join(root, "node_modules", name, "LICENSE")))),
    ],
  ]);
}

/** Puts them into dist/tools/page/client/. */
export const placePage = async () => placeFiles(join(root, "dist/tools/page/client"), await pageFiles());
