import assert from "node:assert/strict";
import { test } from "node:test";
import { setFeatureGates } from "./feature-gates.ts";

test("the bulk switches have their series of kubernetes_feature_enabled, as upstream's have", () => {
  const result = setFeatureGates({ AllAlpha: true });
  assert.ok(result.ok);
  const bulk = result.gates.list().filter(({ name }) => name === "AllAlpha" || name === "AllBeta");
  assert.deepEqual(bulk, [
    { name: "AllAlpha", stage: "Alpha", enabled: true },
    { name: "AllBeta", stage: "Beta", enabled: false },
  ]);
});
