/** The whole program under half a minute of changes and faults; `npm run soak` runs for ten, with slow faults too. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { judgeSoak } from "./soak-judgement.ts";
import { soak } from "./soak-run.ts";

inNetns(import.meta.url, { name: "soak", timeoutMs: 200_000 }, () => {
  test("changes under random faults end as one full sync, with nothing leaked", async () => {
    const seed = Date.now() % 1e6;
    const report = await soak({ mode: "nftables", seconds: 15, seed, hasLongFaults: false }).catch((error: unknown) => {
      throw new Error(`seed ${seed}: ${String(error)}`, { cause: error });
    });
    assert.ok(report.recoveries.length > 0);
    judgeSoak(report);
  });
});
