/**
 * The files that a browser loads: a document, a style sheet, a picture, and modules. In dist/ the modules are compiled; from the
 * sources, types are stripped when they are read.
 */
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const TYPES: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
  js: "text/javascript; charset=utf-8",
};

export interface Asset {
  readonly type: string;
  readonly bytes: Buffer;
}

/** Next to this module, or next to the compiled modules if this one is in the bundle. */
function assetFolder(): string {
  const places = ["./client/", "../page/client/"].map((place) => fileURLToPath(new URL(place, import.meta.url)));
  return places.find((place) => existsSync(`${place}index.html`)) ?? places[0] ?? "";
}

/** Reads all assets. @returns them by path: `/`, `/style.css`, `/main.js`. @throws Error if the installation lacks them. */
export async function readAssets(folder = assetFolder()): Promise<ReadonlyMap<string, Asset>> {
  const assets = new Map<string, Asset>();
  for (const name of await readdir(folder)) {
    const [, stem = "", ending = ""] = /^([\w-]+)\.(\w+)$/.exec(name) ?? [];
    const bytes = await readFile(`${folder}${name}`);
    if (ending === "ts") assets.set(`/${stem}.js`, { type: TYPES.js ?? "", bytes: await withoutTypes(bytes) });
    const type = TYPES[ending];
    if (type !== undefined) assets.set(name === "index.html" ? "/" : `/${name}`, { type, bytes });
  }
  return assets;
}

async function withoutTypes(source: Buffer): Promise<Buffer> {
  const { stripTypeScriptTypes } = await import("node:module");
  const text = stripTypeScriptTypes(source.toString());
  return Buffer.from(text.replaceAll(/(from "\.\/[\w-]+)\.ts"/g, '$1.js"'));
}
