import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "../../testkit/support/fast-check.ts";
import { durationFromMs, durationToMs, formatDuration, formatMs, parseDuration } from "./duration.ts";

const nanoseconds = (text: string): bigint => {
  const read = parseDuration(text);
  assert.ok(read.ok, text);
  return read.value;
};

describe("durations", () => {
  it("reads every unit, fractions, signs and the bare zero", () => {
    const cases: readonly (readonly [string, bigint])[] = [
      ["0", 0n],
      ["-0", 0n],
      ["1ns", 1n],
      ["1us", 1_000n],
      ["1\u00b5s", 1_000n],
      ["1\u03bcs", 1_000n],
      ["300ms", 300_000_000n],
      ["1.5h", 5_400_000_000_000n],
      [".5s", 500_000_000n],
      ["2.s", 2_000_000_000n],
      ["2h45m", 9_900_000_000_000n],
      ["-1m30s", -90_000_000_000n],
      ["+3s", 3_000_000_000n],
      ["0.0000000019s", 1n],
      ["-2562047h47m16.854775808s", -(2n ** 63n)],
    ];
    for (const [text, expected] of cases) assert.equal(nanoseconds(text), expected, text);
  });

  it("refuses in Go's words", () => {
    const cases: readonly (readonly [string, string])[] = [
      ["", 'time: invalid duration ""'],
      ["abc", 'time: invalid duration "abc"'],
      ["-", 'time: invalid duration "-"'],
      [".s", 'time: invalid duration ".s"'],
      ["10", 'time: missing unit in duration "10"'],
      ["1h5", 'time: missing unit in duration "1h5"'],
      ["10x", 'time: unknown unit "x" in duration "10x"'],
      ["1 s", 'time: unknown unit " s" in duration "1 s"'],
      ["9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'],
    ];
    for (const [text, error] of cases) assert.deepEqual(parseDuration(text), { ok: false, error }, text);
  });

  it("writes canonically", () => {
    const cases: readonly (readonly [string, string])[] = [
      ["0", "0s"],
      ["90m", "1h30m0s"],
      ["60s", "1m0s"],
      ["24h", "24h0m0s"],
      ["1500us", "1.5ms"],
      ["1100ns", "1.1\u00b5s"],
      ["1ns", "1ns"],
      ["61.25s", "1m1.25s"],
      ["-1500ms", "-1.5s"],
    ];
    for (const [text, expected] of cases) assert.equal(formatDuration(nanoseconds(text)), expected, text);
  });

  it("loses nothing between text and value", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (value) => {
        assert.equal(nanoseconds(formatDuration(value)), value);
      }),
    );
  });

  it("loses nothing between milliseconds and nanoseconds", () => {
    const daysInNs = 86_400_000_000_000n;
    fc.assert(
      fc.property(fc.bigInt({ min: -49n * daysInNs, max: 49n * daysInNs }), (value) => {
        assert.equal(durationFromMs(durationToMs(value)), value);
      }),
    );
    fc.assert(
      fc.property(fc.maxSafeInteger(), (ms) => {
        assert.equal(durationToMs(durationFromMs(ms)), ms);
      }),
    );
    assert.equal(formatMs(0.0015), "1.5\u00b5s");
  });
});
