/**
 * Compares the test API server's protobuf with protoc's: `hex` in fixtures.json is the output of `protoc
 * --encode=MESSAGE kubernetes.proto` (3.21) for `text`, which is equivalent to `json`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { encodeMessage } from "./encode.ts";
import fixtures from "./fixtures.json" with { type: "json" };

for (const { message, hex, json } of fixtures) {
  test(`${message} is encoded as protoc encodes it`, () => {
    assert.equal(encodeMessage(message, json).toString("hex"), hex);
  });
}
