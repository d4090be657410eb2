import assert from "node:assert/strict";
import { it } from "node:test";
import { FULL_SYNC, merged, NO_WORK, type PendingWork } from "./pending-work.ts";

const failed: PendingWork = {
  isFull: false,
  ports: new Set(["a", "b"]),
  services: new Set(["s"]),
  staleFlows: true,
  goneFrontends: new Set(["udp 10.0.0.1:53"]),
  owing: new Set(),
};

it("hands a failed sync's work on together with what was asked for meanwhile", () => {
  const next = merged(failed, {
    isFull: true,
    ports: new Set(["b", "c"]),
    goneFrontends: new Set(["udp 10.0.0.2:53"]),
  });
  const goneFrontends = new Set(["udp 10.0.0.1:53", "udp 10.0.0.2:53"]);
  assert.deepEqual(next, { ...failed, isFull: true, ports: new Set(["a", "b", "c"]), goneFrontends });
  assert.deepEqual([...next.ports], ["a", "b", "c"], "the older work comes first");
});

it("leaves its arguments as they are, and copies no ports where one side has none", () => {
  assert.equal(merged(failed, NO_WORK).ports, failed.ports);
  assert.equal(merged(FULL_SYNC, failed).ports, failed.ports);
  merged(failed, { ports: new Set(["c"]) });
  assert.deepEqual([...failed.ports], ["a", "b"]);
  assert.equal(NO_WORK.ports.size, 0);
});
