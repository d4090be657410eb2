import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePortRange, portRangeText } from "./port-range.ts";

test("a range is read in every form that upstream has", () => {
  const cases: readonly (readonly [text: string, expected: string])[] = [
    ["", "any"],
    [" ", "any"],
    ["0", "any"],
    ["0-0", "any"],
    ["0-10", "any"],
    ["300", "300"],
    ["300-2000", "300-2000"],
    [" 300+20 ", "300-320"],
    ["1-65535", "1-65535"],
  ];
  for (const [text, expected] of cases) {
    const result = parsePortRange(text);
    assert.equal(result.ok ? portRangeText(result.range) : result.error, expected, JSON.stringify(text));
  }
});

test("what is no range is refused with a reason", () => {
  const cases: readonly (readonly [text: string, reason: string])[] = [
    ["x", "use N, FIRST-LAST or FIRST+LENGTH"],
    ["1-2-3", "use N, FIRST-LAST or FIRST+LENGTH"],
    ["1 - 2", "use N, FIRST-LAST or FIRST+LENGTH"],
    ["-5", "use N, FIRST-LAST or FIRST+LENGTH"],
    ["123456", "use N, FIRST-LAST or FIRST+LENGTH"],
    ["10-5", "the last port, 5, is below the first, 10"],
    ["65536", "there is no port 65536"],
    ["65000+1000", "there is no port 66000"],
  ];
  for (const [text, reason] of cases) {
    const result = parsePortRange(text);
    assert.equal(result.ok ? undefined : result.error, reason, text);
  }
});
