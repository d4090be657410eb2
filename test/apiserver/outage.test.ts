/** An outage of the API server costs no memory, in each of its forms. `npm run attack` makes more attempts. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { measureOutage, OUTAGES } from "./outage.ts";

const REFUSED = Object.keys(OUTAGES).filter((name) => name.startsWith("refused"));

describe("3,000 attempts", { concurrency: 1 }, () => {
  for (const name of REFUSED) {
    test(name, async () => {
      const { grownMb, cpuMs, descriptors } = await measureOutage(name, [100, 3_000]);
      assert.ok(grownMb <= 60, `${grownMb} MB`);
      assert.ok(cpuMs <= 2, `${cpuMs} ms each`);
      assert.ok(descriptors <= 2, `${descriptors} descriptors`);
    });
  }
});

describe("200 attempts", { concurrency: 1 }, () => {
  for (const [name, { ending = "<error>" }] of Object.entries(OUTAGES)) {
    if (REFUSED.includes(name)) continue;
    test(name, async () => {
      const { grownMb, cpuMs, descriptors, endings } = await measureOutage(name, [50, 250]);
      assert.deepEqual(endings, [ending]);
      // A TLS context of the machine's roots for each would be 360 MB and 40 ms.
      assert.ok(grownMb <= 30, `${grownMb} MB`);
      assert.ok(cpuMs <= 20, `${cpuMs} ms each`);
      assert.ok(descriptors <= 12, `${descriptors} descriptors`);
    });
  }
});
