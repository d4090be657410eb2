/** Which folder of src may import which: docs/architecture.md. An import against the layers is an error here. */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** From the bottom to the top; a layer may import itself and what is named. `modes` are `dataplane/<mode>`. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  net: [],
  logging: [],
  text: ["logging"],
  metrics: [],
  async: ["logging"],
  kernel: ["async", "logging", "net"],
  relay: ["async", "kernel", "logging", "net"],
  config: ["logging", "net", "text"],
  cluster: ["async", "kernel", "logging", "metrics", "net", "text"],
  model: ["async", "cluster", "logging", "net"],
  sync: ["async", "cluster", "kernel", "logging", "model", "net", "text"],
  server: ["async", "cluster", "kernel", "logging", "metrics", "net", "sync"],
  inspect: ["cluster", "config", "logging", "model", "net"],
  dataplane: ["async", "config", "inspect", "kernel", "logging", "metrics", "model", "modes", "net", "sync", "trace"],
  "dataplane/shared": ["async", "config", "inspect", "kernel", "logging", "metrics", "model", "net", "sync"],
  modes: [
    ...["async", "config", "dataplane", "dataplane/shared", "inspect", "kernel", "logging", "metrics", "model", "net"],
    ...["relay", "sync", "text", "trace"],
  ],
  trace: ["kernel", "logging", "net"],
  // Settings of all modes together: those of each are declared in its folder.
  settings: ["config", "dataplane", "logging", "net", "text"],
  program: ["config", "metrics", "text"],
  daemon: [
    ...["async", "cluster", "config", "dataplane", "kernel", "logging", "metrics", "model", "net", "program", "server"],
    ...["settings", "sync"],
  ],
  prove: ["cluster", "config", "dataplane", "explain", "inspect", "model", "net", "trace"],
  explain: ["async", "cluster", "config", "dataplane", "inspect", "kernel", "logging", "model", "net", "trace"],
  // What other programs import: entries of package.json's exports.
  lib: ["cluster", "config", "dataplane", "explain", "inspect", "kernel", "model", "net", "settings", "trace"],
  // A daemon seen by people: above what explains and traces.
  page: [
    ...["async", "daemon", "dataplane", "explain", "inspect", "kernel", "logging", "model", "net", "server", "sync"],
    ...["trace"],
  ],
  cli: [
    ...[
      "async",
      "cluster",
      "config",
      "daemon",
      "dataplane",
      "explain",
      "inspect",
      "kernel",
      "lib",
      "logging",
      "net",
      "page",
    ],
    ...["program", "prove", "server", "settings", "text", "trace"],
  ],
};

/** `cli`, `dataplane/nftables`, `testkit`. */
function folderOf(path: string): string {
  const [root = "", layer = "", sub = "", file] = path.split("/");
  if (root !== "src") return root;
  return layer === "dataplane" && file !== undefined ? `${layer}/${sub}` : layer;
}

function layerOf(folder: string): string {
  return folder.startsWith("dataplane/") && folder !== "dataplane/shared" ? "modes" : folder;
}

interface Import {
  readonly from: string;
  readonly to: string;
  /** When it is run: `import()`. */
  readonly isLate?: boolean;
}

function imports(): readonly Import[] {
  const files = globSync("src/**/*.ts", { cwd: ROOT }).filter(
    (file) => !file.endsWith(".test.ts") && !file.includes("/testing/"),
  );
  return files.flatMap((from) => {
    const text = readFileSync(join(ROOT, from), "utf8");
    const targets = [...text.matchAll(/(\bfrom|\bimport\()\s*"(\.\.?\/[^"]+)"/g)];
    return targets.map(([, how, target = ""]) => ({
      from,
      to: relative(ROOT, normalize(join(ROOT, dirname(from), target))),
      isLate: how === "import(",
    }));
  });
}

/** A mode that stands on another has its runtime, renderer and inspection. */
const STANDS_ON: Readonly<Record<string, string>> = { "dataplane/ebpf": "dataplane/nftables" };

test("production code imports only what its layer may", () => {
  const all = imports();
  assert.ok(all.length > 1000, "the imports are found at all");
  const wrong = all.filter(({ from, to }) => {
    const [one, other] = [folderOf(from), folderOf(to)];
    return one !== other && STANDS_ON[one] !== other && !(MAY_IMPORT[layerOf(one)] ?? []).includes(layerOf(other));
  });
  assert.deepEqual(
    wrong.map(({ from, to }) => `${from} imports ${to}`),
    [],
  );
});

test("no mode imports the folder of another, but of the one that it stands on", () => {
  const wrong = imports().filter(({ from, to }) => {
    const [one, other] = [folderOf(from), folderOf(to)];
    return one !== other && STANDS_ON[one] !== other && layerOf(one) === "modes" && layerOf(other) === "modes";
  });
  assert.deepEqual(
    wrong.map(({ from, to }) => `${from} imports ${to}`),
    [],
  );
});

/** Files that import each other, over any number of others. A type counts like a value. */
function cycles(all: readonly Import[]): readonly (readonly string[])[] {
  const next = Map.groupBy(all, ({ from }) => from);
  const places = new Map<string, { index: number; lowest: number }>();
  const path: string[] = [];
  const found: string[][] = [];
  const visit = (file: string): { readonly lowest: number } => {
    const place = { index: places.size, lowest: places.size };
    places.set(file, place);
    path.push(file);
    for (const { to } of next.get(file) ?? []) {
      // What is not on the path any more belongs to another group.
      if (!places.has(to)) place.lowest = Math.min(place.lowest, visit(to).lowest);
      else if (path.includes(to)) place.lowest = Math.min(place.lowest, places.get(to)?.index ?? place.lowest);
    }
    if (place.lowest === place.index) {
      const group = path.splice(path.indexOf(file));
      if (group.length > 1) found.push(group.sort());
    }
    return place;
  };
  for (const from of next.keys()) if (!places.has(from)) visit(from);
  return found;
}

test("a cycle of imports is found, whether of two files or of more", () => {
  const edges = (...pairs: readonly string[]) => pairs.map((pair) => ({ from: pair.charAt(0), to: pair.charAt(1) }));
  assert.deepEqual(cycles(edges("ab", "bc", "ac", "dc", "db")), []);
  assert.deepEqual(cycles(edges("ab", "ba", "bc")), [["a", "b"]]);
  assert.deepEqual(cycles(edges("ab", "bc", "cd", "da", "be", "fe", "ef")), [
    ["e", "f"],
    ["a", "b", "c", "d"],
  ]);
});

test("no two files import each other, not even types, and not over others", () => {
  assert.deepEqual(cycles(imports().filter(({ isLate }) => !isLate)), []);
});

test("no two layers may import each other, but for the registry of the modes and their folders", () => {
  const edges = Object.entries(MAY_IMPORT).flatMap(([from, targets]) => targets.map((to) => ({ from, to })));
  assert.deepEqual(cycles(edges), [["dataplane", "modes"]]);
});
