/**
 * SIGTERM: the daemon exits quickly and cleanly, also as PID 1, and leaves the node's rules and connections alone; one
 * that carries the traffic itself removes its rules.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { stretched } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { clusterOf, type ServiceSpec } from "./cluster-objects.ts";
import { end, endAndCheck } from "./ending.ts";
import { flowNetwork } from "./flow-network.ts";
import { MODES } from "./modes.ts";

/** Maximum duration of a stop; on a machine busy with other tests, of the quickest of several. */
const END_LIMIT_MS = 2000;

const services: readonly ServiceSpec[] = Array.from({ length: 30 }, (_, index) => ({
  name: `service-${index}`,
  number: index + 1,
  endpoints: ["local-1", "remote-1"],
}));

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
    assert.ok(Math.min(...idle) < stretched(END_LIMIT_MS), `idle, it took ${idle.join(" and ")} ms`);
    assert.ok(Math.min(...busy) < stretched(END_LIMIT_MS), `in its work, it took ${busy.join(" and ")} ms`);
  });
}
