/** The whole program recovers at once after an outage. `npm run soak -- --outages 10,60,150,600` tests longer ones. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { PATIENCE } from "../../testkit/support/patience.ts";
import { measureRecovery } from "./recovery-run.ts";

const GOAL_MS = 2_000;
/** Shorter than any grown backoff, and longer than the delays of a busy machine. */
const NOISE_MS = 8_000;

inNetns(import.meta.url, { name: "recovery", timeoutMs: 180_000 }, () => {
  test("a server that comes back without its history, and a mended token: 2 s until a change is in the kernel", async (t) => {
    const { milliseconds, expiredErrors } = await measureRecovery({
      services: 3_000,
      outageSeconds: [10, 12],
      badTokenSeconds: [5, 6],
      onProgress: (line) => t.diagnostic(line),
    });
    for (const kind of ["server away", "token refused"]) {
      const took = [...milliseconds].filter(([what]) => what.startsWith(kind)).map(([, each]) => each);
      assert.ok(Math.min(...took) <= GOAL_MS * PATIENCE, `${kind}: ${took.join(", ")} ms`);
      assert.ok(Math.max(...took) <= (GOAL_MS + NOISE_MS) * PATIENCE, `${kind}: ${took.join(", ")} ms`);
    }
    assert.deepEqual(expiredErrors, []);
  });
});
