import assert from "node:assert/strict";
import { test } from "node:test";
import { hnsFeatures } from "./hns-version.ts";

const CASES = [
  [9, 1, []],
  [9, 2, ["apiV2", "remoteSubnet"]],
  [9, 5, ["apiV2", "remoteSubnet", "dsr"]],
  [10, 1, ["apiV2", "remoteSubnet"]],
  [10, 2, ["apiV2", "remoteSubnet", "dsr"]],
  [11, 10, ["apiV2", "remoteSubnet", "dsr", "ipv6DualStack"]],
  [15, 4, ["apiV2", "remoteSubnet", "dsr", "ipv6DualStack", "sessionAffinity"]],
  [15, 5, ["apiV2", "remoteSubnet", "dsr", "ipv6DualStack", "sessionAffinity", "modifyLoadBalancer"]],
  [16, 0, ["apiV2", "remoteSubnet", "dsr", "ipv6DualStack", "sessionAffinity", "modifyLoadBalancer"]],
] as const;

for (const [major, minor, expected] of CASES) {
  test(`HNS ${major}.${minor} has ${expected.length === 0 ? "nothing" : expected.join(", ")}`, () => {
    const features = Object.entries(hnsFeatures({ major, minor }));
    assert.deepEqual(
      features.flatMap(([name, isThere]) => (isThere ? [name] : [])),
      [...expected],
    );
  });
}
