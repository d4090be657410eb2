import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../testkit/support/fast-check.ts";
import { PatternIndex } from "./pattern-index.ts";
import { fits, type Pattern } from "./value.ts";

test("finds what a scan finds", () => {
  const number = fc.integer({ min: 0, max: 20 });
  const pattern: fc.Arbitrary<Pattern> = fc.oneof(
    number.map((value): Pattern => ({ kind: "exact", value })),
    fc.tuple(number, number).map(([first, length]): Pattern => {
      return { kind: "range", first: BigInt(first), last: BigInt(first + length) };
    }),
    fc.constantFrom("", "e", "eth").map((text): Pattern => ({ kind: "beginning", text })),
  );
  fc.assert(
    fc.property(fc.array(pattern), fc.oneof(number, fc.constantFrom("eth0", "lo")), (patterns, value) => {
      const index = new PatternIndex([...patterns.keys()], (at) => patterns[at] ?? { kind: "exact", value: "none" });
      const scanned = [...patterns.keys()].filter((at) =>
        fits(patterns[at] ?? { kind: "exact", value: "none" }, value),
      );
      assert.deepEqual(
        index.at(value).toSorted((a, b) => a - b),
        scanned,
      );
    }),
  );
});
