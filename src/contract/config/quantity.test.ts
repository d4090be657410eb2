import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { parseQuantity } from "./quantity.ts";

describe("parseQuantity", () => {
  it("makes quantities canonical and counts their bytes", () => {
    const cases: readonly (readonly [string, string, number])[] = [
      ["0", "0", 0],
      ["512", "512", 512],
      ["1k", "1k", 1000],
      ["1000", "1k", 1000],
      ["1024Ki", "1Mi", 1048576],
      ["1Ki", "1Ki", 1024],
      ["0.5Ki", "512", 512],
      ["1.5Ki", "1536", 1536],
      ["0.5", "500m", 1],
      ["2e3", "2e3", 2000],
      ["-1M", "-1M", -1000000],
      ["+3", "3", 3],
    ];
    for (const [input, text, bytes] of cases) {
      assert.deepEqual(parseQuantity(input), { ok: true, value: { text, bytes } }, input);
    }
  });

  it("refuses what is no quantity", () => {
    for (const input of ["", "abc", "1.2.3", ".", "1 k"]) {
      const read = parseQuantity(input);
      assert.ok(!read.ok && read.error.startsWith("quantities must match the regular expression"), input);
    }
    assert.deepEqual(parseQuantity("1K"), { ok: false, error: "unable to parse quantity's suffix" });
  });

  it("reads its own canonical form back", () => {
    const suffix = fc.constantFrom("", "m", "k", "M", "Ki", "Mi", "e3");
    fc.assert(
      fc.property(fc.integer(), suffix, (number, unit) => {
        const first = parseQuantity(`${number}${unit}`);
        assert.ok(first.ok);
        assert.deepEqual(parseQuantity(first.value.text), first);
      }),
    );
  });
});
