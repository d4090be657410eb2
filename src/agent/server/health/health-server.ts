/** `/healthz`, `/livez` (reference operation.md §9.1, health.md §15) and this program's `/readyz` on `healthzBindAddress`. */

import { answeringAt, type HttpEndpoint, type ServerOptions, startHttpEndpoint } from "../http/http-endpoint.ts";
import { JSON_TYPE, reply } from "../http/http-reply.ts";
import { type HttpHandler, queryOf, routePaths } from "../http/routes.ts";
import type { HealthVerdict, ProxyHealth } from "./proxy-health.ts";
import { formatRfc3339, ZERO_TIME } from "./rfc3339.ts";

/** An answer of one of the two paths. */
interface HealthAnswer {
  readonly status: 200 | 503;
  readonly body: string;
}

interface HealthServerOptions extends ServerOptions {
  readonly health: ProxyHealth;
  readonly metrics: { countHealthz(status: 200 | 503): void; countLivez(status: 200 | 503): void };
}

/**
 * The answer for a state. Byte for byte upstream's, except for extra last keys: `failures` while the kernel rejects a part of the
 * rules, `degraded` while something is served in a degraded way. `healthy` covers only the proxiers; with `considersNode`, the status
 * also covers the node and connections through its rules. @param isVerbose includes what the mode says of its work, for each family.
 */
export function healthAnswer(verdict: HealthVerdict, considersNode: boolean, isVerbose = false): HealthAnswer {
  const isOk = verdict.isHealthy && (!considersNode || (verdict.isNodeEligible && verdict.isReached));
  const newestMs = Math.max(...verdict.families.map(({ lastUpdatedMs }) => lastUpdatedMs));
  const lastUpdatedMs = isOk ? verdict.nowMs : newestMs;
  const families = verdict.families.map((one) => {
    const remarks = isVerbose ? one.remarks : [];
    const { family, lastUpdatedMs: familyMs, isHealthy: healthy } = one;
    return [family, { lastUpdated: formatRfc3339(familyMs), healthy, ...(remarks.length > 0 && { remarks }) }];
  });
  const body = {
    lastUpdated: Number.isFinite(lastUpdatedMs) ? formatRfc3339(lastUpdatedMs) : ZERO_TIME,
    currentTime: formatRfc3339(verdict.nowMs),
    ...(considersNode ? { nodeEligible: verdict.isNodeEligible } : {}),
    healthy: verdict.isHealthy,
    ...(families.length === 0 ? {} : { status: Object.fromEntries(families) }),
    ...(verdict.failures.length === 0 ? {} : { failures: verdict.failures }),
    ...(verdict.degraded.length === 0 ? {} : { degraded: verdict.degraded }),
  };
  return { status: isOk ? 200 : 503, body: JSON.stringify(body) };
}

/** Starts the health server. @returns `undefined` if the address is empty. */
export function startHealthServer(options: HealthServerOptions): HttpEndpoint | undefined {
  const { address, health, metrics, log } = options;
  if (address === "") return undefined;
  const answer = (considersNode: boolean, count: (status: 200 | 503) => void): HttpHandler => {
    return async (request, response) => {
      if (considersNode) await health.look();
      const { status, body } = healthAnswer(health.verdict(), considersNode, queryOf(request).has("verbose"));
      count(status);
      reply(response, status, JSON_TYPE, body);
    };
  };
  return startHttpEndpoint({
    ...options,
    handler: routePaths({
      "/healthz": answer(true, (status) => metrics.countHealthz(status)),
      "/livez": answer(false, (status) => metrics.countLivez(status)),
      "/readyz": (_request, response) => {
        const { body } = healthAnswer(health.verdict(), false);
        reply(response, health.isReady() ? 200 : 503, JSON_TYPE, body);
      },
    }),
    onListenFailure(error) {
      log.error(
        "Healthz server failed",
        new Error(`failed to start proxy healthz on ${address}: ${error.message}`, { cause: error }),
        { cannot: answeringAt(address) },
      );
    },
    onHardFail: (reason) =>
      options.onHardFail(`healthz server failed: failed to start proxy healthz on ${address}: ${reason}`),
  });
}
