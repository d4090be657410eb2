import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { kernelSkip } from "../testkit/support/topology.ts";
import { againstTable } from "./against.ts";
import type { ProgramFigures } from "./first-connection.ts";

const OWN = fileURLToPath(new URL("../bin/kube-proxy", import.meta.url));
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

const figures = (firstSyncMs: number): ProgramFigures => ({
  firstSyncMs,
  startCpuMs: 500,
  connection: { count: 3, p50: 4, p99: 8 },
  workMs: 2,
  changeCpuMs: 20,
  rssMb: 50,
  peakMb: 80,
  privateMb: 20,
});

test("a ratio is the other program's figure for each of ours, of single rounds", () => {
  const rounds = [
    [figures(100), figures(900)],
    [figures(200), figures(400)],
    [figures(400), figures(600)],
  ] as const;
  const text = againstTable({ title: "nftables Flat, 15 × 4", name: "Kubernetes v1.36.2", rounds });
  assert.match(text, /^nftables Flat, 15 × 4 +here +Kubernetes v1\.36\.2 +ratio$/m);
  assert.match(text, /^start to first sync, ms +200 +600 +2\.00$/m);
});

test("a binary that cannot be run is refused by name", { skip: kernelSkip }, (t) => {
  const folder = folderOf(t);
  const text = join(folder, "notes");
  writeFileSync(text, "");
  const missing = join(folder, "missing");
  for (const [words, expected] of [
    [[], "give one BINARY"],
    [[OWN, OWN], "give one BINARY"],
    [[missing], `${missing} does not exist`],
    [[folder], `${folder} is no file`],
    [[text], `${text} is not executable`],
    [[OWN, "--sizes", "3000"], '--sizes: "3000" is not like 3000x4'],
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
  const other = program(t, `[ "$1" = --version ] && echo Kubernetes v9.9.9 || exec ${OWN} "$@"`);
  const { status, stdout, stderr } = against(other, "--quick", "--changes", "2", "--layout", "Flat", "--json", json);
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^nftables Flat, 15 × 4 +here +Kubernetes v9\.9\.9 +ratio$/m);
  const { results } = JSON.parse(readFileSync(json, "utf8"));
  const [rounds] = results.map((result: { readonly rounds: readonly ProgramFigures[][] }) => result.rounds);
  assert.equal(rounds.length, 1);
  for (const { firstSyncMs, startCpuMs, connection, workMs, rssMb } of rounds[0]) {
    for (const value of [firstSyncMs, startCpuMs, workMs, rssMb]) assert.ok(value > 0, JSON.stringify(rounds));
    assert.equal(connection.count, 2);
  }
});
