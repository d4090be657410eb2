/** Lists of `-m recent`, as a kernel shows them (Linux 6.18). */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { recentLists } from "../../src/tools/cli/trace-kernel.ts";

const TIMERS = `Timer List Version: v0.10
HRTIMER_MAX_CLOCK_BASES: 8
now at 27564807924297 nsecs

cpu: 0
  .idle_jiffies   : 4301770000
  .last_jiffies   : 4301783549
cpu: 1
  .last_jiffies   : 4301783540
`;
const LIST = `src=10.0.0.9 ttl: 64 last_seen: 4301783049 oldest_pkt: 1 4301783049
src=fd00::9 ttl: 0 last_seen: 4301758549 oldest_pkt: 2 4301758000, 4301758549
`;

function procWith(t: TestContext, timers: string | undefined): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-recent-"));
  t.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, "net/xt_recent"), { recursive: true });
  writeFileSync(join(folder, "net/xt_recent/KUBE-SEP-1"), LIST);
  if (timers !== undefined) writeFileSync(join(folder, "timer_list"), timers);
  return folder;
}

test("clients, and how long ago each was seen", async (t) => {
  const clients = (await recentLists(procWith(t, TIMERS)))?.get("KUBE-SEP-1");
  assert.deepEqual(
    [...(clients ?? [])],
    [
      ["10.0.0.9", 2],
      ["fd00::9", 100],
    ],
  );
});

test("where the kernel does not tell its clock, clients without their age; without lists, nothing", async (t) => {
  const clients = (await recentLists(procWith(t, undefined)))?.get("KUBE-SEP-1");
  assert.deepEqual(
    [...(clients ?? [])],
    [
      ["10.0.0.9", undefined],
      ["fd00::9", undefined],
    ],
  );
  assert.equal(await recentLists("/nonexistent"), undefined);
});
