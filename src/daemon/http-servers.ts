/** The daemon's two HTTP servers, and the events that tell of an address that could not be had (operation.md §9.4, §13). */

import type { Clock } from "../async/clock.ts";
import type { EventRecorder } from "../cluster/apiserver/events/events.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import type { FeatureGates } from "../config/feature-gates.ts";
import type { Logger } from "../logging/logger.ts";
import { identityLine, programIdentity } from "../program/program-identity.ts";
import { startHealthServer } from "../server/health/health-server.ts";
import type { ProxyHealth } from "../server/health/proxy-health.ts";
import type { ServerLimits } from "../server/http/connection-limits.ts";
import type { HttpEndpoint } from "../server/http/http-endpoint.ts";
import type { ProxyMetrics } from "../server/metrics/metrics.ts";
import { startMetricsServer } from "../server/metrics/metrics-server.ts";
import { toV1Alpha1 } from "../settings/v1alpha1-encode.ts";
import { nodeEvent } from "./node-events.ts";

/** How long the end of the program waits for the event that says why: on a busy node two seconds were not enough. */
const LAST_EVENT_LIMIT_MS = 5_000;

export interface HttpServersContext {
  readonly config: KubeProxyConfig;
  readonly gates: FeatureGates;
  readonly nodeName: string;
  readonly health: ProxyHealth;
  readonly metrics: ProxyMetrics;
  /** Already being sent, so that the last one has a chance. */
  readonly events: EventRecorder;
  readonly limits: ServerLimits;
  readonly clock: Clock;
  readonly log: Logger;
  /** Closes the servers. */
  readonly ended: AbortSignal;
  /** The program must end with this error. */
  readonly fatal: (error: Error) => void;
}

/** What only the metrics server shows. */
export interface MetricsServerContext extends HttpServersContext {
  readonly flags: ReadonlyMap<string, string>;
  readonly version: string;
  readonly setVerbosity: (level: number) => void;
}

export interface HttpServers {
  /** Settled when both are closed. */
  readonly closed: Promise<unknown>;
}

/** Starts both. The metrics port is open before `/healthz` says 200, unless it cannot be had: then it is tried again. */
export async function startServers(context: MetricsServerContext): Promise<HttpServers> {
  const metricsServer = startMetrics(context);
  await metricsServer?.tried;
  const healthServer = startHealth(context);
  return { closed: Promise.all([healthServer?.closed, metricsServer?.closed]) };
}

/** Starts `/healthz` and `/livez`; `undefined` when they are switched off. */
function startHealth(context: HttpServersContext): HttpEndpoint | undefined {
  const { config, health, metrics } = context;
  return startHealthServer({
    ...listening(context),
    limits: context.limits.health,
    address: config.healthzBindAddress,
    health,
    metrics,
    onHardFail: (reason) => void failHard(context, "FailedToStartProxierHealthcheck", reason),
  });
}

/** Starts `/metrics` and its neighbours, as far as the configuration and the feature gates allow them. */
function startMetrics(context: MetricsServerContext): HttpEndpoint | undefined {
  const { config, gates, metrics } = context;
  const implementation = identityLine(programIdentity());
  return startMetricsServer({
    ...listening(context),
    limits: context.limits.metrics,
    address: config.metricsBindAddress,
    families: metrics.families,
    mode: config.mode,
    configz: toV1Alpha1(config),
    ...(gates.isEnabled("ComponentFlagz") ? { flags: context.flags } : {}),
    ...(gates.isEnabled("ComponentStatusz") ? { status: { version: context.version, implementation } } : {}),
    ...(config.enableProfiling ? { setVerbosity: context.setVerbosity } : {}),
    onHardFail: (reason) => void failHard(context, "FailedToStartMetricServer", reason),
  });
}

function listening({ config, clock, log, ended }: HttpServersContext) {
  return { log, clock, signal: ended, isBindHardFail: config.bindAddressHardFail };
}

/** Ends the program, with an event that says why where the API server can be told in time. */
async function failHard(
  { nodeName, events, clock, ended, fatal }: HttpServersContext,
  eventReason: "FailedToStartProxierHealthcheck" | "FailedToStartMetricServer",
  reason: string,
): Promise<void> {
  events.record(nodeEvent(nodeName, "Warning", eventReason, reason));
  await Promise.race([events.idle(), clock.sleep(LAST_EVENT_LIMIT_MS, ended)]);
  fatal(new Error(reason));
}
