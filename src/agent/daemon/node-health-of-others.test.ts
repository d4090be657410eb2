import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../async/clock.ts";
import { createManifestsSource } from "../cluster/manifests/manifests-source.ts";
import { ProxyHealth } from "../server/health/proxy-health.ts";
import { memoryLog } from "../server/testing/memory-log.ts";
import { DualStackDispatcher } from "../sync/dual-stack.ts";
import { NodeManager } from "./node-manager.ts";
import { nodeHealth } from "./run-proxy.ts";

const node = (name: string, taints: readonly object[] = []) => ({
  apiVersion: "v1",
  kind: "Node",
  metadata: { name },
  spec: { taints },
  status: { addresses: [{ type: "InternalIP", address: "10.0.0.1" }] },
});
const GOING = [{ key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule" }];

async function isEligible(nodes: readonly object[], nodeName: string): Promise<boolean> {
  const dir = mkdtempSync(join(tmpdir(), "node-health-"));
  const stop = new AbortController();
  try {
    writeFileSync(join(dir, "nodes.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items: nodes }));
    const log = memoryLog();
    const health = new ProxyHealth({ clock: systemClock, syncPeriodMs: 30_000 });
    const onFatal = (error: Error) => assert.fail(error);
    const manager = new NodeManager({ nodeName, needsPodCIDRs: false, maxWaitMs: 0, clock: systemClock, log, onFatal });
    // Put together as in runProxy.
    const sink = new DualStackDispatcher({ nodeName, nodeSinks: [manager, nodeHealth(health, nodeName)], log });
    const running = createManifestsSource({ dir, log }).run(sink, stop.signal);
    await manager.start(stop.signal);
    stop.abort();
    await running;
    return health.verdict().isNodeEligible;
  } finally {
    rmSync(dir, { recursive: true });
  }
}

test("/healthz speaks of this node, not of other Nodes that the folder of manifests has", async () => {
  const fleet = [node("node-a"), node("node-b", GOING), node("node-c")];
  assert.equal(
    await isEligible([...fleet, node("node-d", GOING)], "node-a"),
    true,
    "node-d is to be removed, not node-a",
  );
  assert.equal(await isEligible(fleet, "node-b"), false, "node-b is to be removed");
  assert.equal(await isEligible([node("node-c")], "node-x"), false, "nothing is known of node-x");
});
