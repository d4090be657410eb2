import assert from "node:assert/strict";
import { test } from "node:test";
import { shareOfServers } from "./share-of-servers.ts";

test("the servers have a quarter of the descriptors, and never too few to answer a probe", () => {
  assert.deepEqual([20, 64, 400, 6144, 1_000_000].map(shareOfServers), [16, 16, 100, 1536, 1536]);
});
