/**
 * Bundles the program into a few files, dist/bundle/: hundreds of modules take several times as long to load as the few
 * that a start needs (docs/notes/performance-diary.md). The library's entries stay separate modules.
 *
 * - `main.js`, which Node.js is given, chooses between the next two (src/tools/cli/launch.ts);
 * - `kube-proxy.cjs`: the daemon and everything else that kube-proxy's own command line needs, in one script, so that its compiled code can
 *   be kept (`compiled-code.mjs`);
 * - `commands.js` and its chunks: the commands, each of which loads what it needs;
 * - `log-places.json`: the source line of each log call.
 */
import { existsSync, readdirSync, rmSync } from "node:fs";
import { SourceMap } from "node:module";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { placeFiles } from "./place-files.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = join(root, "dist/bundle");

/** The package's own ES modules, made from the same sources: its CommonJS ones have no names that can be imported later. */
const YAML = join(root, "node_modules/yaml/browser/dist/index.js");

/** Calls that may write to the log, which includes their place in the sources. */
const LOG_CALLS = /(?<before>\.\s*)(?:info|v|warn|error|isVerbose)\(/g;

const COMMON = {
  absWorkingDir: root,
  outdir: folder,
  bundle: true,
  platform: "node",
  target: "node24",
  // Comes with native code.
  external: ["koffi"],
  alias: { yaml: YAML },
  sourcemap: "external",
  sourcesContent: false,
  write: false,
  logLevel: "warning",
};

/** The commands are in other files (src/tools/cli/launch.ts): the script must not contain them, too. */
const WITHOUT_COMMANDS = {
  name: "without-commands",
  setup(build) {
    build.onResolve({ filter: /^\.\// }, ({ importer, kind, path }) =>
      kind === "dynamic-import" && importer === join(root, "src/tools/cli/commands.ts")
        ? { path, namespace: "command" }
        : undefined,
    );
    build.onLoad({ filter: /.*/, namespace: "command" }, ({ path }) => ({
      contents: `throw new Error(${JSON.stringify(`${path} is not in this script`)});`,
    }));
  },
};

const BUILDS = [
  {
    entryPoints: { commands: "src/tools/cli/main.ts" },
    splitting: true,
    format: "esm",
  },
  { entryPoints: { main: "src/tools/cli/launch.ts" }, format: "esm" },
  {
    entryPoints: { "kube-proxy": "src/tools/cli/main.ts" },
    format: "cjs",
    outExtension: { ".js": ".cjs" },
    plugins: [WITHOUT_COMMANDS],
    // An expression: src/tools/cli/program-script.ts calls it. Blanks would be a third of it, and the text stays in memory.
    banner: {
      js: '(function (exports, require, module, __filename) {\nconst __url = require("node:url").pathToFileURL(__filename).href;',
    },
    footer: { js: "})" },
    define: { "import.meta.url": "__url" },
    minifyWhitespace: true,
    lineLimit: 160,
  },
];

/** What a start reads first names the rest. */
const ENTRIES = ["main.js", "kube-proxy.cjs", "commands.js"];

/** @returns whether there is a bundle now; without esbuild there is none, and the modules run as they are. */
export async function bundle() {
  const esbuild = await import("esbuild").catch(() => undefined);
  if (esbuild === undefined) {
    rmSync(folder, { recursive: true, force: true });
    return false;
  }
  const results = await Promise.all(BUILDS.map((options) => esbuild.build({ ...COMMON, ...options })));
  const files = new Map();
  const texts = new Map(results.flatMap(({ outputFiles }) => outputFiles.map(({ path, text }) => [path, text])));
  const places = {};
  for (const [path, text] of texts) {
    if (path.endsWith(".map")) continue;
    files.set(relative(folder, path), text);
    const found = logPlaces(text, JSON.parse(texts.get(`${path}.map`) ?? "{}"));
    if (Object.keys(found).length > 0) places[basename(path)] = found;
  }
  files.set("log-places.json", `${JSON.stringify(places)}\n`);
  // Compiled code of another text of the same size would be accepted.
  if (existsSync(folder))
    for (const name of readdirSync(folder)) if (name.endsWith(".cache")) rmSync(join(folder, name));
  placeFiles(folder, new Map([...files].sort(([a], [b]) => Number(ENTRIES.includes(a)) - Number(ENTRIES.includes(b)))));
  return true;
}

/** The source position of each call that may write to the log: `{"120:17": "src/agent/daemon/run-proxy.ts:93"}`. */
function logPlaces(text, payload) {
  const map = new SourceMap(payload);
  const places = {};
  const starts = [0];
  for (const { index } of text.matchAll(/\n/g)) starts.push(index + 1);
  let line = 0;
  for (const { index, groups } of text.matchAll(LOG_CALLS)) {
    // The position of the name: a line may end between the dot and the name.
    const at = index + groups.before.length;
    while ((starts[line + 1] ?? Infinity) <= at) line += 1;
    const column = at - starts[line];
    const { originalSource, originalLine } = map.findEntry(line, column);
    if (originalSource === undefined || originalSource.includes("node_modules")) continue;
    places[`${line + 1}:${column + 1}`] = `${relative(root, join(folder, originalSource))}:${originalLine + 1}`;
  }
  return places;
}
