import assert from "node:assert/strict";
import { after, test } from "node:test";
import { formatRfc3339 } from "./rfc3339.ts";

const zone = process.env.TZ;
after(() => {
  if (zone === undefined) delete process.env.TZ;
  else process.env.TZ = zone;
});

const cases: readonly [zone: string, unixMs: number, text: string][] = [
  ["UTC", Date.UTC(2026, 0, 2, 3, 4, 5), "2026-01-02T03:04:05Z"],
  ["UTC", Date.UTC(2026, 0, 2, 3, 4, 5, 120), "2026-01-02T03:04:05.12Z"],
  ["UTC", Date.UTC(2026, 0, 2, 3, 4, 5, 7) + 0.25, "2026-01-02T03:04:05.00725Z"],
  ["Europe/Berlin", Date.UTC(2026, 6, 2, 23, 4, 5), "2026-07-03T01:04:05+02:00"],
  ["America/St_Johns", Date.UTC(2026, 0, 2, 3, 4, 5, 1), "2026-01-01T23:34:05.001-03:30"],
];

for (const [timeZone, unixMs, text] of cases) {
  test(`${text} is printed in the zone ${timeZone}`, () => {
    process.env.TZ = timeZone;
    assert.equal(formatRfc3339(unixMs), text);
  });
}
