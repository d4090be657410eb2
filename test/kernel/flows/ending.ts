/** How a daemon ends when told to, and what it leaves. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { PATIENCE } from "../../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { differenceFrom } from "./asking.ts";
import { answersOf, type Expected } from "./expected.ts";
import { addressOf, type FlowNetwork } from "./flow-network.ts";
import { type Mode, traitsOf } from "./modes.ts";

const NO_END_MS = 15_000 * PATIENCE;

/** Sends SIGTERM and asserts a clean end. @returns how long it took, in ms. */
export async function end(daemon: ProxyDaemon, pid = daemon.pid): Promise<number> {
  assert.ok(pid !== undefined && pid > 0, "the daemon runs");
  const sentAt = Date.now();
  process.kill(pid, "SIGTERM");
  const tooLate = new AbortController();
  const limit = sleep(NO_END_MS, "no end", { signal: tooLate.signal }).catch(() => "no limit");
  const status = await Promise.race([daemon.ended(), limit]);
  tooLate.abort();
  assert.equal(status, 0, `after ${Date.now() - sentAt} ms; the daemon's log:\n${daemon.log}`);
  return Date.now() - sentAt;
}

/** Ends the daemon and checks what is left of its first service, which has `local-1` and `remote-1`. @returns how long the end took, in ms. */
export async function endAndCheck({ daemon, probers }: FlowNetwork, mode: Mode, pid = daemon.pid): Promise<number> {
  const { rules, carriesTraffic } = traitsOf[mode];
  const before = await rules(daemon);
  const tookMs = await end(daemon, pid);
  const after = await rules(daemon);
  if (carriesTraffic) assert.doesNotMatch(after, /PROXY/, "rules that lead nowhere");
  else assert.equal(after, before, "the rules after the end");
  const expected: Expected = carriesTraffic
    ? { kind: "nothing" }
    : answersOf(["local-1", "remote-1"], false, "off-node client", "IPv4");
  const target = addressOf(1, "load balancer", "TCP", "IPv4");
  assert.equal(await differenceFrom(expected, probers["off-node client"], target), undefined);
  return tookMs;
}
