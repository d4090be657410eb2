/**
 * The files that a browser loads: a document, a style sheet, a picture, and a script. In dist/ they are ready; from the sources, the
 * build's own module makes them.
 */
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { fileURLToPath, pathToFileURL } from "node:url";

const TYPES: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
  js: "text/javascript; charset=utf-8",
  txt: "text/plain; charset=utf-8",
};

export interface Asset {
  readonly type: string;
  readonly bytes: Buffer;
}

/** Next to this module, or next to the compiled modules if this one is in the bundle. */
function assetFolder(): string {
  const places = ["./client/", "../tools/page/client/"].map((place) => fileURLToPath(new URL(place, import.meta.url)));
  return places.find((place) => existsSync(`${place}index.html`)) ?? places[0] ?? "";
}

/** Reads all assets. @returns them by path: `/`, `/style.css`, `/main.js`. @throws Error if the installation lacks them. */
export async function readAssets(folder = assetFolder()): Promise<ReadonlyMap<string, Asset>> {
  const files = existsSync(`${folder}main.ts`) ? await builtFiles(folder) : await filesIn(folder);
  return new Map(
    Array.from(files, ([name, bytes]) => {
      const type = TYPES[name.replace(/^.*\./, "")] ?? "application/octet-stream";
      return [name === "index.html" ? "/" : `/${name}`, { type, bytes }];
    }),
  );
}

async function filesIn(folder: string): Promise<ReadonlyMap<string, Buffer>> {
  const names = (await readdir(folder)).filter((name) => /^[\w-]+\.(?:html|css|svg|js|txt)$/.test(name));
  return new Map(await Promise.all(names.map(async (name) => [name, await readFile(`${folder}${name}`)] as const)));
}

async function builtFiles(folder: string): Promise<ReadonlyMap<string, Buffer>> {
  const script = new URL("../../../../scripts/page-files.mjs", pathToFileURL(folder)).href;
  return await ((await import(script)) as { pageFiles(): Promise<ReadonlyMap<string, Buffer>> }).pageFiles();
}
