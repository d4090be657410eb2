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
  async: ["logging"],
  kernel: ["async", "logging", "net"],
  relay: ["async", "kernel", "logging", "net"],
  // Settings and the descriptors of the modes that declare them are one layer in two folders.
  config: ["dataplane", "logging", "net"],
  cluster: ["async", "config", "kernel", "logging", "net", "server"],
  model: ["async", "cluster", "logging", "net"],
  sync: ["async", "cluster", "config", "kernel", "logging", "model", "net"],
  server: ["async", "cluster", "kernel", "logging", "net", "sync"],
  inspect: ["cluster", "config", "logging", "model", "net", "sync"],
  dataplane: ["async", "config", "inspect", "kernel", "logging", "model", "modes", "net", "server", "sync"],
  "dataplane/shared": [
    "async",
    "config",
    "dataplane",
    "inspect",
    "kernel",
    "logging",
    "model",
    "net",
    "server",
    "sync",
  ],
  modes: [
    ...["async", "cluster", "config", "dataplane", "dataplane/shared", "inspect", "kernel", "logging", "model", "net"],
    ...["relay", "server", "sync"],
  ],
  trace: ["kernel", "logging", "net"],
  program: ["config", "server"],
  daemon: [
    ...["async", "cluster", "config", "dataplane", "kernel", "logging", "model", "net", "program", "server", "sync"],
  ],
  explain: ["async", "cluster", "config", "dataplane", "inspect", "kernel", "logging", "model", "net", "trace"],
  // What other programs import: entries of package.json's exports.
  lib: ["cluster", "config", "dataplane", "inspect", "kernel", "model", "net", "sync"],
  // A daemon seen by people: above what explains and traces.
  page: [
    ...["async", "config", "daemon", "dataplane", "explain", "inspect", "kernel", "logging", "model", "net", "server"],
    ...["sync", "trace"],
  ],
  cli: [
    ...["cluster", "config", "daemon", "dataplane", "explain", "inspect", "kernel", "lib", "logging", "net", "page"],
    ...["program", "server", "trace"],
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
}

function imports(): readonly Import[] {
  const files = globSync("src/**/*.ts", { cwd: ROOT }).filter(
    (file) => !file.endsWith(".test.ts") && !file.includes("/testing/"),
  );
  return files.flatMap((from) => {
    const text = readFileSync(join(ROOT, from), "utf8");
    const targets = [...text.matchAll(/(?:\bfrom|\bimport\()\s*"(\.\.?\/[^"]+)"/g)];
    return targets.map(([, target = ""]) => ({
      from,
      to: relative(ROOT, normalize(join(ROOT, dirname(from), target))),
    }));
  });
}

test("production code imports only what its layer may", () => {
  const all = imports();
  assert.ok(all.length > 1000, "the imports are found at all");
  const wrong = all.filter(({ from, to }) => {
    const [one, other] = [folderOf(from), folderOf(to)];
    return one !== other && !(MAY_IMPORT[layerOf(one)] ?? []).includes(layerOf(other));
  });
  assert.deepEqual(
    wrong.map(({ from, to }) => `${from} imports ${to}`),
    [],
  );
});

test("no mode imports the folder of another", () => {
  const wrong = imports().filter(({ from, to }) => {
    const [one, other] = [folderOf(from), folderOf(to)];
    return one !== other && layerOf(one) === "modes" && layerOf(other) === "modes";
  });
  assert.deepEqual(
    wrong.map(({ from, to }) => `${from} imports ${to}`),
    [],
  );
});
