import assert from "node:assert/strict";
import { test } from "node:test";
import { measureKernelspace } from "./kernelspace.ts";

test("calls of a change do not grow with the cluster, an idle sync has none, a restart writes nothing", async () => {
  const [small, large] = [await measureKernelspace(3), await measureKernelspace(30)];
  const [, change, idle, look, restart] = large;
  assert.equal(change?.calls, small[1]?.calls);
  assert.ok((change?.calls ?? 0) < 20, `${change?.calls}`);
  assert.equal(idle?.calls, 0);
  assert.deepEqual([look?.calls, look?.writes], [3, 0]);
  assert.equal(restart?.writes, 0);
  for (const { name, calls, upstreamCalls } of large)
    assert.ok(upstreamCalls === undefined || calls < upstreamCalls, name);
});
