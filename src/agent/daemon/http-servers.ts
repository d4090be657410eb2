/** The daemon's two HTTP servers, and the events that report an address that could not be bound (operation.md §9.4, §13). */

import { identityLine, programIdentity } from "../../program/program-identity.ts";
import { startHealthServer } from "../server/health/health-server.ts";
import type { HttpEndpoint } from "../server/http/http-endpoint.ts";
import { startMetricsServer } from "../server/metrics/metrics-server.ts";
import { toV1Alpha1 } from "../settings/v1alpha1-encode.ts";
import type { Daemon, RunOptions } from "./daemon.ts";
import { nodeEvent } from "./node-events.ts";

/** How long the exit waits for the event that explains it: on a busy node two seconds were not enough. */
const LAST_EVENT_LIMIT_MS = 5_000;

/** What the servers show of a daemon. */
export type ServedDaemon = Omit<Daemon, "options" | "mode" | "kernel" | "journal"> & {
  readonly options: Pick<RunOptions, "config" | "flags" | "version" | "setVerbosity">;
};

/** Starts both; `closed` settles when both are closed. The metrics port opens before `/healthz` answers 200; binding it is retried. */
export async function startServers(daemon: ServedDaemon): Promise<{ readonly closed: Promise<unknown> }> {
  const metricsServer = startMetrics(daemon);
  await metricsServer?.tried;
  const healthServer = startHealth(daemon);
  return { closed: Promise.all([healthServer?.closed, metricsServer?.closed]) };
}

/** Starts `/healthz` and `/livez`; `undefined` if they are switched off. */
function startHealth(daemon: ServedDaemon): HttpEndpoint | undefined {
  const { options, limits, health, metrics } = daemon;
  return startHealthServer({
    ...listening(daemon),
    limits: limits.health,
    address: options.config.healthzBindAddress,
    health,
    metrics,
    onHardFail: (reason) => void failHard(daemon, "FailedToStartProxierHealthcheck", reason),
  });
}

/** Starts `/metrics` and the pages beside it, as the configuration and the feature gates allow. */
function startMetrics(daemon: ServedDaemon): HttpEndpoint | undefined {
  const { options, limits, gates, metrics } = daemon;
  const { config, flags, version, setVerbosity } = options;
  const implementation = identityLine(programIdentity());
  return startMetricsServer({
    ...listening(daemon),
    limits: limits.metrics,
    address: config.metricsBindAddress,
    families: metrics.families,
    mode: config.mode,
    configz: toV1Alpha1(config),
    ...(gates.isEnabled("ComponentFlagz") ? { flags } : {}),
    ...(gates.isEnabled("ComponentStatusz") ? { status: { version, implementation } } : {}),
    ...(config.enableProfiling ? { setVerbosity } : {}),
    onHardFail: (reason) => void failHard(daemon, "FailedToStartMetricServer", reason),
  });
}

function listening({ options, clock, log, ended }: ServedDaemon) {
  return { log, clock, signal: ended, isBindHardFail: options.config.bindAddressHardFail };
}

/** Ends the program, after an event with the reason if the API server accepts it in time. */
async function failHard(
  { nodeName, events, clock, ended, fatal }: ServedDaemon,
  eventReason: "FailedToStartProxierHealthcheck" | "FailedToStartMetricServer",
  reason: string,
): Promise<void> {
  events.record(nodeEvent(nodeName, "Warning", eventReason, reason));
  await Promise.race([events.idle(), clock.sleep(LAST_EVENT_LIMIT_MS, ended)]);
  fatal(new Error(reason));
}
