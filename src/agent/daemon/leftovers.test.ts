import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { memoryLog } from "../server/testing/memory-log.ts";
import { FakeClock } from "../sync/testing/fake-clock.ts";
import { removeAllLeftovers } from "./leftovers.ts";

const CONFIG = {} as KubeProxyConfig; // no mode here reads it

/** A mode whose cleanup works from the given attempt on. */
function mode(name: string, worksAt: number) {
  let attempts = 0;
  return {
    name,
    loadCleanUp: async () => async () => ++attempts >= worksAt,
    get attempts() {
      return attempts;
    },
  };
}

test("leftovers that another program's lock holds are removed later, and what is gone is not asked for again", async () => {
  const clock = new FakeClock();
  const stop = new AbortController();
  const [held, free] = [mode("iptables", 3), mode("userspace", 1)];
  const options = { config: CONFIG, log: memoryLog(), clock };
  const removing = removeAllLeftovers([held, free], options, stop.signal);
  await clock.advance(29_999);
  assert.deepEqual([held.attempts, free.attempts], [1, 1]);
  await clock.advance(1);
  assert.deepEqual([held.attempts, free.attempts], [2, 1]);
  await clock.advance(60_000);
  assert.deepEqual([held.attempts, free.attempts], [3, 1]);
  await removing;
});

test("the end of the program is not held up by them", async () => {
  const clock = new FakeClock();
  const stop = new AbortController();
  const held = mode("iptables", Number.POSITIVE_INFINITY);
  const options = { config: CONFIG, log: memoryLog(), clock };
  const removing = removeAllLeftovers([held], options, stop.signal);
  await clock.advance(1_000);
  stop.abort();
  await removing;
  assert.equal(held.attempts, 1);
});

test("a clean-up that throws ends nothing: the modes after it have their turn, and it is tried again", async () => {
  const clock = new FakeClock();
  const log = memoryLog();
  let attempts = 0;
  const broken = {
    name: "ebpf",
    loadCleanUp: async () => async () => {
      attempts += 1;
      if (attempts === 1) throw new Error("EMFILE: too many open files, open '/proc/self/mountinfo'");
      return true;
    },
  };
  const other = mode("iptables", 1);
  const removing = removeAllLeftovers([broken, other], { config: CONFIG, log, clock }, new AbortController().signal);
  await clock.advance(30_000);
  await removing;
  assert.deepEqual([attempts, other.attempts], [2, 1]);
  assert.match(log.errors.join(), /EMFILE/);
});
