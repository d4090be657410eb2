/** Which folder of src may import which: docs/architecture.md. An import against the layers is an error here. */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

const BASE = ["async", "logging", "metrics", "net", "text"];

/** From the bottom to the top; a layer may import itself and what is named. `modes` are `modes/<mode>`, `registry` is a file beside them. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  net: [],
  logging: [],
  metrics: [],
  text: ["logging"],
  async: ["logging"],
  kernel: ["async", "logging", "net"],
  relay: ["async", "kernel", "logging", "net"],
  trace: ["kernel", "logging", "net"],
  model: ["async", "logging", "net", "text"],
  contract: [...BASE, "kernel", "model", "trace"],
  "modes/shared": [...BASE, "contract", "kernel", "model"],
  modes: [...BASE, "contract", "kernel", "model", "modes/shared", "relay", "trace"],
  registry: ["contract", "modes"],
  program: ["contract", "metrics", "text"],
  // The daemon's parts know each other through the contract alone.
  "agent/cluster": [...BASE, "kernel", "model"],
  "agent/server": [...BASE, "contract", "kernel", "model"],
  "agent/settings": [...BASE, "contract", "registry"],
  "agent/sync": [...BASE, "contract", "kernel", "model"],
  "agent/daemon": [
    ...["agent/cluster", "agent/server", "agent/settings", "agent/sync"],
    ...[...BASE, "contract", "kernel", "model", "program", "registry"],
  ],
  "tools/explain": [...BASE, "contract", "kernel", "model", "registry", "trace"],
  "tools/prove": ["contract", "model", "net", "tools/explain", "trace"],
  "tools/page": [
    ...["agent/daemon", "agent/server", "agent/sync", "tools/explain"],
    ...[...BASE, "contract", "kernel", "model", "registry", "trace"],
  ],
  // What other programs import: entries of package.json's exports.
  lib: [
    ...["agent/cluster", "agent/settings", "tools/explain"],
    ...["contract", "kernel", "model", "net", "registry", "trace"],
  ],
  "tools/cli": [
    ...["agent/cluster", "agent/daemon", "agent/server", "agent/settings"],
    ...["tools/explain", "tools/page", "tools/prove", "lib", "program"],
    ...[...BASE, "contract", "kernel", "model", "registry", "trace"],
  ],
};

/** `model`, `agent/sync`, `modes/nftables`, `testkit`. */
function folderOf(path: string): string {
  const [root = "", layer = "", sub = "", file] = path.split("/");
  if (root !== "src") return root;
  if (layer === "modes" && file === undefined) return sub.replace(".ts", "");
  return ["agent", "modes", "tools"].includes(layer) ? `${layer}/${sub}` : layer;
}

function layerOf(folder: string): string {
  return folder.startsWith("modes/") && folder !== "modes/shared" ? "modes" : folder;
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
const STANDS_ON: Readonly<Record<string, string>> = { "modes/ebpf": "modes/nftables" };

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

test("no two layers may import each other", () => {
  const edges = Object.entries(MAY_IMPORT).flatMap(([from, targets]) => targets.map((to) => ({ from, to })));
  assert.deepEqual(cycles(edges), []);
});
