import assert from "node:assert/strict";
import { test } from "node:test";
import { nearestWord } from "./suggestion.ts";

test("the nearest word is what was meant, and nothing when nothing is near", () => {
  const words = ["config", "config-sync-period", "cleanup", "proxy-mode", "v"];
  assert.equal(nearestWord("confg", words), "config");
  assert.equal(nearestWord("Proxy_Mode", words), "proxy-mode");
  assert.equal(nearestWord("clean", words), "cleanup");
  assert.equal(nearestWord("config-sync", words), "config-sync-period");
  assert.equal(nearestWord("telepathy", words), undefined);
  assert.equal(nearestWord("x", words), undefined);
  assert.equal(nearestWord("config", []), undefined);
});
