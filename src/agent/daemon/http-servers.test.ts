import assert from "node:assert/strict";
import { type ListenOptions, Server } from "node:net";
import { test } from "node:test";
import { setFeatureGates } from "../../contract/config/feature-gates.ts";
import { ProxyHealth } from "../server/health/proxy-health.ts";
import { serverLimits } from "../server/http/connection-gate.ts";
import { createMetrics } from "../server/metrics/metrics.ts";
import { memoryLog } from "../server/testing/memory-log.ts";
import { EMPTY_DOCUMENT, resolveDocument } from "../settings/defaults.ts";
import { FakeClock } from "../sync/testing/fake-clock.ts";
import { type ServedDaemon, startServers } from "./http-servers.ts";

/** Two loopback addresses, to tell which server listens. */
const METRICS_HOST = "127.0.0.2";
const HEALTH_HOST = "127.0.0.3";

function context(ended: AbortSignal): ServedDaemon {
  const clock = new FakeClock(Date.now());
  const gates = setFeatureGates({});
  assert.ok(gates.ok);
  return {
    options: {
      config: {
        ...resolveDocument(EMPTY_DOCUMENT),
        healthzBindAddress: `${HEALTH_HOST}:0`,
        metricsBindAddress: `${METRICS_HOST}:0`,
      } as ServedDaemon["options"]["config"],
      flags: new Map(),
      version: "v1.36.2",
      setVerbosity: () => {},
    },
    gates: gates.gates,
    nodeName: "node-a",
    health: new ProxyHealth({ clock, syncPeriodMs: 30_000 }),
    metrics: createMetrics(),
    events: { record: () => {}, idle: async () => {}, run: async () => {} },
    limits: serverLimits(64_000),
    clock,
    log: memoryLog(),
    ended,
    fatal: (error) => assert.fail(error),
  };
}

test("the metrics port is open before the health port is asked for", async (t) => {
  const seen: string[] = [];
  const original = Server.prototype.listen;
  t.mock.method(Server.prototype, "listen", function (this: Server, options: ListenOptions) {
    seen.push(`${options.host} asked for`);
    this.once("listening", () => seen.push(`${options.host} open`));
    return original.call(this, options);
  });
  const stop = new AbortController();
  const servers = await startServers(context(stop.signal));
  const isSeen = () => seen.some((line) => line.startsWith(HEALTH_HOST));
  while (!isSeen()) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(seen.slice(0, 3), [`${METRICS_HOST} asked for`, `${METRICS_HOST} open`, `${HEALTH_HOST} asked for`]);
  stop.abort();
  await servers.closed;
});
