import assert from "node:assert/strict";
import { test } from "node:test";
import { RefusedPorts } from "../shared/refused-ports.ts";
import { Retries } from "./retries.ts";

test("a sync is requested when a try is due, not when a timer fires early", async () => {
  let nowMs = 0;
  const clock = {
    monotonicMs: () => nowMs,
    sleep: async (delayMs: number) => {
      nowMs += delayMs > 1 ? delayMs - 1 : delayMs;
    },
  };
  const refused = new RefusedPorts(() => {});
  refused.set("shop/web:http/TCP", { subject: "shop/web:http", reason: "no space" });
  const retries = new Retries(refused, clock);
  const changes = { changedPorts: new Set(["shop/web:http/TCP"]), services: new Set(["shop/web:http/TCP"]) };
  const stop = new AbortController();
  const requested = Promise.withResolvers<void>();
  retries.watch = { signal: stop.signal, requestSync: requested.resolve };
  retries.compared(100);
  assert.equal(retries.areDue(changes), false);
  await requested.promise;
  assert.equal(retries.areDue(changes), true, `after ${nowMs} ms`);
  assert.equal(nowMs, 400);
});
