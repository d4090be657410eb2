/** SIGTERM: the daemon ends at once and cleanly, also as PID 1, and leaves the node's rules and connections alone. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { ProxyDaemon } from "../../support/proxy-daemon.ts";
import { kernelSkip } from "../../support/topology.ts";
import { differenceFrom } from "./asking.ts";
import { clusterOf, type ServiceSpec } from "./cluster-objects.ts";
import { answersOf } from "./expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { MODES, type Mode, traitsOf } from "./modes.ts";

const END_LIMIT_MS = 2000;

/** The exit status, or a failure when the end does not come. */
async function endOf(daemon: ProxyDaemon): Promise<number | NodeJS.Signals | null> {
  const tooLate = new AbortController();
  const limit = sleep(5 * END_LIMIT_MS, "no end", { signal: tooLate.signal }).catch(() => "aborted");
  const status = await Promise.race([daemon.ended(), limit]);
  tooLate.abort();
  assert.notEqual(status, "no end", `SIGTERM does not end the daemon:\n${daemon.log}`);
  return await daemon.ended();
}

const services: readonly ServiceSpec[] = Array.from({ length: 30 }, (_, index) => ({
  name: `service-${index}`,
  number: index + 1,
  endpoints: ["local-1", "remote-1"],
}));

/** Ends the daemon by SIGTERM to this process, and checks what is left. */
async function endAndCheck({ daemon, probers }: FlowNetwork, mode: Mode, pid: number | undefined): Promise<void> {
  const before = await traitsOf[mode].rules(daemon);
  assert.ok(pid !== undefined);
  const sentAt = Date.now();
  process.kill(pid, "SIGTERM");
  assert.equal(await endOf(daemon), 0, daemon.log);
  const tookMs = Date.now() - sentAt;
  assert.ok(tookMs < END_LIMIT_MS, `${tookMs} ms`);
  assert.equal(await traitsOf[mode].rules(daemon), before);
  const expected = answersOf(["local-1", "remote-1"], false, "off-node client", "IPv4");
  const target = addressOf(1, "load balancer", "TCP", "IPv4");
  assert.equal(await differenceFrom(expected, probers["off-node client"], target), undefined);
}

/** The PIDs of a process's children. */
function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").map(Number);
}

for (const mode of MODES) {
  test(`${mode}: SIGTERM ends the daemon with status 0, idle and in the middle of its work`, {
    skip: kernelSkip,
  }, async (t) => {
    const network = await flowNetwork(t, mode, services);
    const { daemon } = network;
    await endAndCheck(network, mode, daemon.pid);
    for (const [round, delayMs] of [0, 30, 100].entries()) {
      const startedAt = Date.now();
      daemon.spawn();
      await daemon.synced(startedAt);
      daemon.writeObjects(clusterOf(services.slice((round + 1) % 2)));
      await sleep(delayMs);
      const sentAt = Date.now();
      assert.equal(await daemon.stop("SIGTERM"), 0, `${delayMs} ms after a change:\n${daemon.log}`);
      assert.ok(Date.now() - sentAt < END_LIMIT_MS, `${Date.now() - sentAt} ms, ${delayMs} ms after a change`);
    }
  });

  test(`${mode}: as PID 1 the daemon works and ends on SIGTERM`, { skip: kernelSkip }, async (t) => {
    const network = await flowNetwork(t, mode, services, {
      wrapper: ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"],
    });
    const [pid = 0] = childrenOf(network.daemon.pid ?? 0);
    assert.match(readFileSync(`/proc/${pid}/status`, "utf8"), /^NSpid:\t\d+\t1$/m);
    await endAndCheck(network, mode, pid);
  });
}
