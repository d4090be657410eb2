/**
 * Puts the program into a few files, dist/bundle/: hundreds of modules take several times as long to load as the few
 * that a start needs (docs/performance.md). The library's entries stay modules of their own.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { SourceMap } from "node:module";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = join(root, "dist/bundle");

/** What Node.js is given: the program, and the thread that reads manifests. */
const ENTRIES = ["src/cli/main.ts", "src/cluster/manifests/reader/thread-main.ts"];

/** The package's own ES modules, made from the same sources: its CommonJS ones have no names that can be imported later. */
const YAML = join(root, "node_modules/yaml/browser/dist/index.js");

/** Lines that may write to the log, whose place in the sources is part of what they write. */
const LOG_CALL = /\.(?:info|v|warn|error|isVerbose)\(/;

/** @returns whether there is a bundle now; without esbuild there is none, and the modules run as they are. */
export async function bundle() {
  rmSync(folder, { recursive: true, force: true });
  const esbuild = await import("esbuild").catch(() => undefined);
  if (esbuild === undefined) return false;
  const { outputFiles } = await esbuild.build({
    absWorkingDir: root,
    entryPoints: ENTRIES,
    entryNames: "[name]",
    outdir: folder,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node24",
    // Has native code beside it.
    external: ["koffi"],
    alias: { yaml: YAML },
    sourcemap: "external",
    sourcesContent: false,
    write: false,
    logLevel: "warning",
  });
  mkdirSync(folder, { recursive: true });
  const texts = new Map(outputFiles.map(({ path, text }) => [path, text]));
  const places = {};
  for (const [path, text] of texts) {
    if (!path.endsWith(".js")) continue;
    writeFileSync(path, text);
    const found = logPlaces(text, JSON.parse(texts.get(`${path}.map`) ?? "{}"));
    if (Object.keys(found).length > 0) places[basename(path)] = found;
  }
  writeFileSync(join(folder, "log-places.json"), `${JSON.stringify(places)}\n`);
  return true;
}

/** For each line that may write to the log, where it is in the sources: `{"120": "src/daemon/run-proxy.ts:93"}`. */
function logPlaces(text, payload) {
  const map = new SourceMap(payload);
  const places = {};
  for (const [index, line] of text.split("\n").entries()) {
    const call = LOG_CALL.exec(line);
    if (call === null) continue;
    const { originalSource, originalLine } = map.findEntry(index, call.index + 1);
    if (originalSource === undefined || originalSource.includes("node_modules")) continue;
    places[index + 1] = `${relative(root, join(folder, originalSource))}:${originalLine + 1}`;
  }
  return places;
}
