import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../agent/sync/testing/fake-clock.ts";
import { sharedReading } from "./shared-reading.ts";

test("one reading serves all who ask while it is made, and for its time after that", async () => {
  const clock = new FakeClock();
  let made = 0;
  const waiting: (() => void)[] = [];
  const read = sharedReading(() => new Promise<number>((resolve) => waiting.push(() => resolve(++made))), 100, clock);
  const first = [read(), read()];
  await clock.advance(1000);
  first.push(read());
  for (const end of waiting.splice(0)) end();
  assert.deepEqual(await Promise.all(first), [1, 1, 1]);
  await clock.advance(99);
  assert.equal(await read(), 1);
  const fresh = read(50);
  for (const end of waiting.splice(0)) end();
  assert.equal(await fresh, 2, "one caller wants a newer one");
  await clock.advance(100);
  const next = read();
  for (const end of waiting.splice(0)) end();
  assert.equal(await next, 3);
});

test("a failure reaches all who wait, and the next one asks again", async () => {
  let made = 0;
  const read = sharedReading(
    async () => {
      made += 1;
      if (made === 1) throw new Error("no");
      return made;
    },
    100,
    new FakeClock(),
  );
  const both = await Promise.allSettled([read(), read()]);
  assert.deepEqual(
    both.map(({ status }) => status),
    ["rejected", "rejected"],
  );
  assert.equal(await read(), 2);
});
