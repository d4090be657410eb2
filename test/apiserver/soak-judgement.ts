/** The assertions on the result of a soak run. */
import assert from "node:assert/strict";
import type { SoakReport } from "./soak-run.ts";

/** Allows for sockets that are being opened or closed, and a watch between two requests. */
const SPARE_DESCRIPTORS = 3;
const SPARE_RESOURCES = 8;
/** The memory limit of the second half of a run relative to the first half; both include what the start needs. */
const MOST_GROWTH_MB = 12;

/** @throws AssertionError naming what leaked, grew or differs. */
export function judgeSoak({ rules, freshRules, before, after, rssMb }: SoakReport): void {
  assert.equal(rules, freshRules, "the kernel holds what one full sync of the final objects gives");
  assert.ok(
    after.fileDescriptors <= before.fileDescriptors + SPARE_DESCRIPTORS,
    `${before.fileDescriptors} file descriptors before, ${after.fileDescriptors} after`,
  );
  assert.ok(
    after.activeResources <= before.activeResources + SPARE_RESOURCES,
    `${before.activeResources} sockets and timers before, ${after.activeResources} after`,
  );
  const half = Math.floor(rssMb.length / 2);
  const growthMb = median(rssMb.slice(half)) - median(rssMb.slice(Math.floor(half / 3), half));
  assert.ok(growthMb <= MOST_GROWTH_MB, `memory grew by ${growthMb.toFixed(1)} MB: ${rssMb.map(Math.round).join(" ")}`);
}

export function median(samples: readonly number[]): number {
  return samples.toSorted((a, b) => a - b)[Math.floor(samples.length / 2)] ?? 0;
}
