import assert from "node:assert/strict";
import { test } from "node:test";
import { guidBytes, parseGuid, ZERO_GUID } from "./guid.ts";

test("a GUID is read in either case, with or without braces", () => {
  const lower = "0be07c06-353c-4fbf-8ebc-5531f877e68a";
  for (const text of [lower, lower.toUpperCase(), `{${lower}}`]) assert.equal(parseGuid(text), lower);
  for (const text of ["", "123ABC", `${lower}0`, lower.replaceAll("-", ""), ` ${lower}`]) {
    assert.equal(parseGuid(text), undefined, text);
  }
});

test("in memory, the first three groups are little-endian", () => {
  const guid = parseGuid("0be07c06-353c-4fbf-8ebc-5531f877e68a") ?? ZERO_GUID;
  assert.equal(Buffer.from(guidBytes(guid)).toString("hex"), "067ce00b3c35bf4f8ebc5531f877e68a");
  assert.deepEqual([...guidBytes(ZERO_GUID)], new Array(16).fill(0));
});
