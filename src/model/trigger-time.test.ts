import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../testkit/support/fast-check.ts";
import { parseRfc3339Ms } from "./endpoints-change-tracker.ts";

const BASE = Date.UTC(2024, 1, 29, 13, 5, 9);

const times: readonly [string, number | undefined][] = [
  ["2024-02-29T13:05:09Z", BASE],
  ["2024-02-29T13:05:09.5Z", BASE + 500],
  ["2024-02-29T13:05:09.123456789Z", BASE + 123.456789],
  ["2024-02-29T14:05:09+01:00", BASE],
  ["2024-02-29T07:35:09-05:30", BASE],
  ["2024-02-29T13:05:09+24:00", BASE - 86_400_000],
  ["1969-12-31T23:59:59.250Z", -750],
  ["", undefined],
  ["yesterday", undefined],
  ["2024-02-29 13:05:09Z", undefined],
  ["2024-02-29T13:05:09", undefined],
  ["2024-02-29T13:05:09z", undefined],
  ["2024-02-30T13:05:09Z", undefined],
  ["2024-13-01T13:05:09Z", undefined],
  ["2024-02-29T24:00:00Z", undefined],
  ["2024-02-29T13:05:60Z", undefined],
  ["2024-02-29T13:05:09+25:00", undefined],
  ["2024-02-29T13:05:09+01:60", undefined],
  ["2024-02-29T13:05:09.Z", undefined],
  [" 2024-02-29T13:05:09Z", undefined],
];
for (const [text, expected] of times) {
  test(`${JSON.stringify(text)} is ${expected === undefined ? "no time" : "a time"}`, () => {
    const found = parseRfc3339Ms(text);
    if (expected === undefined || found === undefined) assert.equal(found, expected);
    else assert.ok(Math.abs(found - expected) < 0.001, `${found} is not ${expected}`);
  });
}

test("every time that JavaScript prints is read back", () => {
  fc.assert(
    fc.property(fc.date({ min: new Date(0), max: new Date("9999-12-31T23:59:59Z"), noInvalidDate: true }), (date) => {
      assert.equal(parseRfc3339Ms(date.toISOString()), date.getTime());
    }),
  );
});
