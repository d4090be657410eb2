import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { KUBE_PROXY } from "../testkit/needs/built-program.ts";
import { kernelSkip } from "../testkit/support/topology.ts";
import { againstColumns } from "./against.ts";
import { type Figures, figuresTable } from "./table.ts";

const RUN = fileURLToPath(new URL("./run.ts", import.meta.url));

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-against-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

function program(t: TestContext, script: string): string {
  const path = join(folderOf(t), "kube-proxy");
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
  return path;
}

function against(...words: readonly string[]) {
  const args = [RUN, "against", ...words];
  return spawnSync(process.execPath, args, { encoding: "utf8", timeout: 300_000 });
}

test("a ratio is the other program's figure for each of ours, of single rounds", () => {
  const runs = (...all: readonly number[]): readonly Figures[] => all.map((value) => ({ "first sync, ms": { value } }));
  const text = figuresTable("Flat", againstColumns("Kubernetes v1.36.2", runs(100, 200, 400), runs(900, 400, 600)));
  assert.match(text, /^Flat +here +Kubernetes v1\.36\.2 +ratio$/m);
  assert.match(text, /^first sync, ms +200 +600 +2$/m);
});

test("a binary that cannot be run is refused by name", { skip: kernelSkip }, (t) => {
  const folder = folderOf(t);
  const text = join(folder, "notes");
  writeFileSync(text, "");
  const missing = join(folder, "missing");
  for (const [words, expected] of [
    [[], "give one BINARY"],
    [[KUBE_PROXY, KUBE_PROXY], "give one BINARY"],
    [[missing], `${missing} does not exist`],
    [[folder], `${folder} is not a file`],
    [[text], `${text} is not executable`],
    [[KUBE_PROXY, "--sizes", "3000"], '--sizes: "3000" is not like 3000x4'],
  ] as const) {
    const { status, stderr } = against(...words);
    assert.deepEqual([status, stderr], [2, `${expected}\n`]);
  }
});

test("a binary that ends, or never syncs, is told of with its last lines", { skip: kernelSkip }, (t) => {
  const ending = program(t, "echo cannot do that >&2; exit 3");
  const { status, stderr } = against(ending, "--quick");
  assert.equal(status, 2);
  assert.ok(stderr.endsWith(`${ending} ended with status 3 before its first sync; its last lines:\ncannot do that\n`));
  const idle = program(t, '[ "$1" = --version ] || exec sleep 1000');
  const late = against(idle, "--quick", "--limit", "1");
  assert.equal(late.status, 2);
  assert.match(late.stderr, /had no first sync in 1 s: .*; it has logged nothing\n$/);
});

test("another program's version, start, change and memory stand beside ours", { skip: kernelSkip }, (t) => {
  const json = join(folderOf(t), "figures.json");
  const other = program(t, `[ "$1" = --version ] && echo Kubernetes v9.9.9 || exec ${KUBE_PROXY} "$@"`);
  const { status, stdout, stderr } = against(other, "--quick", "--changes", "2", "--layout", "Flat", "--json", json);
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^nftables Flat, 15 × 4 +here +Kubernetes v9\.9\.9 +ratio$/m);
  const { results } = JSON.parse(readFileSync(json, "utf8"));
  const { here, "Kubernetes v9.9.9": there } = results["nftables Flat, 15 × 4"];
  for (const figures of [here, there]) {
    assert.equal(Object.keys(figures).length, 9);
    for (const [name, { value }] of Object.entries(figures as Figures)) assert.ok(Number(value) > 0, name);
  }
});
