/**
 * SIGTERM: the daemon ends at once and cleanly, also as PID 1, and leaves the node's rules and connections alone; one that
 * carries the traffic itself takes its rules along.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { PATIENCE } from "../../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { differenceFrom } from "./asking.ts";
import { clusterOf, type ServiceSpec } from "./cluster-objects.ts";
import { answersOf, type Expected } from "./expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { MODES, type Mode, traitsOf } from "./modes.ts";

/** An end takes no longer; on a machine that is busy with other tests the quickest of several must not. */
const END_LIMIT_MS = 2000 * PATIENCE;
const NO_END_MS = 15_000 * PATIENCE;

/** Sends SIGTERM and asserts a clean end. @returns how long it took, in ms. */
async function end(daemon: ProxyDaemon, pid = daemon.pid): Promise<number> {
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

const services: readonly ServiceSpec[] = Array.from({ length: 30 }, (_, index) => ({
  name: `service-${index}`,
  number: index + 1,
  endpoints: ["local-1", "remote-1"],
}));

/** Ends the daemon and checks what is left. @returns how long the end took, in ms. */
async function endAndCheck({ daemon, probers }: FlowNetwork, mode: Mode, pid = daemon.pid): Promise<number> {
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

/** The PIDs of a process's children. */
function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").map(Number);
}

const AS_PID_1 = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] as const;

for (const mode of MODES) {
  test(`${mode}: SIGTERM ends the daemon with status 0: idle, in the middle of its work, and as PID 1`, {
    skip: kernelSkip,
  }, async (t) => {
    const network = await flowNetwork(t, mode, services);
    const { daemon } = network;
    const idle = [await endAndCheck(network, mode)];
    const busy: number[] = [];
    for (const [round, delayMs] of [0, 30, 100].entries()) {
      const startedAt = Date.now();
      daemon.spawn();
      await daemon.synced(startedAt);
      daemon.writeObjects(clusterOf(services.slice((round + 1) % 2)));
      await sleep(delayMs);
      busy.push(await end(daemon));
    }
    daemon.writeObjects(clusterOf(services));
    const startedAt = Date.now();
    daemon.spawn(AS_PID_1);
    await daemon.synced(startedAt);
    const [pid = 0] = childrenOf(daemon.pid ?? 0);
    assert.match(readFileSync(`/proc/${pid}/status`, "utf8"), /^NSpid:\t\d+\t1$/m);
    idle.push(await endAndCheck(network, mode, pid));
    assert.ok(Math.min(...idle) < END_LIMIT_MS, `idle, it took ${idle.join(" and ")} ms`);
    assert.ok(Math.min(...busy) < END_LIMIT_MS, `in its work, it took ${busy.join(" and ")} ms`);
  });
}
