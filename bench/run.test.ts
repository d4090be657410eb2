import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { kernelSkip } from "../testkit/support/topology.ts";
import { type Figures, numberOf } from "./table.ts";

test("every step of a small run is measured with both back ends, and nothing is left behind", {
  skip: kernelSkip,
}, () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-bench-test-"));
  try {
    const json = join(folder, "figures.json");
    const run = fileURLToPath(new URL("./run.ts", import.meta.url));
    const command = [run, "--quick", "--sizes", "40", "--json", json];
    const { pid, status, stderr } = spawnSync(process.execPath, command, { encoding: "utf8", timeout: 60_000 });
    assert.equal(status, 0, stderr);
    const { figures }: { readonly figures: Readonly<Record<string, Figures>> } = JSON.parse(readFileSync(json, "utf8"));
    assert.deepEqual(Object.keys(figures), ["legacy, 40", "nft, 40"]);
    for (const column of Object.values(figures)) {
      const names = [
        ...["first sync: processor time, own and of tools but iptables-restore", "  iptables-restore, by the clock"],
        ...["  sent, kB", "endpoint replaced: iptables-restore", "  with the text that kube-proxy sends"],
        ...["endpoint replaced: everything but that", "service added: iptables-restore"],
        ...["service removed: iptables-restore", "restart with nothing changed"],
        ...["iptables-restore alone, by the clock", "planning a replaced endpoint, without a tool"],
      ];
      for (const name of names) assert.ok((numberOf(column[name]) ?? 0) > 0, name);
      assert.ok(!("cut off" in column));
    }
    const namespaces = execFileSync("ip", ["netns", "list"], { encoding: "utf8" });
    assert.ok(!namespaces.includes(`kpts-bench-${pid}-`), namespaces);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
