import assert from "node:assert/strict";
import { test } from "node:test";
import { parseListenAddress } from "./listen-address.ts";

test("ports are spelled as the configuration's check and Go let them be", () => {
  assert.deepEqual(parseListenAddress("0.0.0.0:+10256"), { host: "0.0.0.0", port: 10256 });
  assert.deepEqual(parseListenAddress("[::1]:00010249"), { host: "::1", port: 10249 });
  for (const text of ["10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:", "10.0.0.1:1e3", "10.0.0.1"]) {
    assert.equal(parseListenAddress(text), undefined, text);
  }
});
