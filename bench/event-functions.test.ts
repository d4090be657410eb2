/** What a maintainer steps through: one EndpointSlice must not meet ever more functions on its way to the kernel. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { kernelSkip } from "../testkit/support/topology.ts";
import { type Figures, numberOf } from "./table.ts";

/** Lower these when there are fewer. */
const MOST = { functions: 287, files: 60 } as const;

test("one EndpointSlice in the flat layout runs through no more functions and files than these", {
  skip: kernelSkip,
}, () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-bench-test-"));
  try {
    const json = join(folder, "figures.json");
    const run = fileURLToPath(new URL("./run.ts", import.meta.url));
    const command = [run, "functions", "--modes", "Flat", "--json", json];
    const { status, stderr } = spawnSync(process.execPath, command, { encoding: "utf8", timeout: 90_000 });
    assert.equal(status, 0, stderr);
    const { figures }: { readonly figures: Readonly<Record<string, Figures>> } = JSON.parse(readFileSync(json, "utf8"));
    for (const [what, most] of Object.entries(MOST)) {
      const found = numberOf(figures.Flat?.[what]) ?? 0;
      assert.ok(found > most / 2 && found <= most, `${found} ${what}; npm run bench -- functions --list names them`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
