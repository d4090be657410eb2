import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePortRange } from "./port-range.ts";

test("a range is read in every form", () => {
  const cases: readonly (readonly [text: string, from: number, to: number])[] = [
    ["300", 300, 300],
    ["300-2000", 300, 2000],
    [" 300+20 ", 300, 320],
    ["1-65535", 1, 65535],
  ];
  for (const [text, from, to] of cases) assert.deepEqual(parsePortRange(text), { ok: true, range: { from, to } }, text);
});

test("nothing and zero mean any port", () => {
  for (const text of ["", " ", "0", "0-0", "0+0"])
    assert.deepEqual(parsePortRange(text), { ok: true, range: undefined });
});

test("what is no range is refused with a reason", () => {
  const cases: readonly (readonly [text: string, reason: RegExp])[] = [
    ["x", /use N, FIRST-LAST or FIRST\+LENGTH/],
    ["1-2-3", /use N/],
    ["-5", /use N/],
    ["10-5", /the last port, 5, is below the first, 10/],
    ["0-10", /ports are 1 to 65535/],
    ["70000", /ports are 1 to 65535/],
    ["65000+1000", /ports are 1 to 65535/],
  ];
  for (const [text, reason] of cases) {
    const result = parsePortRange(text);
    assert.match(result.ok ? "" : result.error, reason, text);
  }
});
