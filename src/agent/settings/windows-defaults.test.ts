import assert from "node:assert/strict";
import { test } from "node:test";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "./defaults.ts";
import { configErrors } from "./validate.ts";

const windows = (clusterCIDR: string) =>
  applyPlatformDefaults(resolveDocument({ ...EMPTY_DOCUMENT, clusterCIDR }), "win32");

test("on Windows no detectLocalMode is filled in", () => {
  assert.equal(windows("").detectLocalMode, "");
});

test("on Windows clusterCIDR, which nothing reads, keeps no node from starting", () => {
  const errors = configErrors(windows("10.244.0.0/16, fd00::/64")).filter((error) => /ClusterCIDRs/.test(error));
  assert.deepEqual(errors, []);
});
