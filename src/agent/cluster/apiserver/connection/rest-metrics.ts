/** The `rest_client_*` metrics of Kubernetes components (reference operation.md §12.3) that apply here. */

import type { Clock } from "../../../../async/clock.ts";
import type { MetricFamilies } from "../../../../metrics/metric-families.ts";
import type { ExecPluginObserver } from "../auth/exec-credentials.ts";

const SECONDS: readonly number[] = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60];
const BYTES: readonly number[] = [64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216];

/** From ten minutes to four years. */
const CERTIFICATE_AGE_SECONDS: readonly number[] = [
  600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000,
];

/** Registers the metrics. @returns the observer that updates them. */
export function createRestMetrics(families: MetricFamilies, clock: Clock): RestObserver & ExecPluginObserver {
  return { ...createRequestMetrics(families), ...createExecPluginMetrics(families, clock) };
}

/** Observes every request. `verb` is the HTTP method; `code` an HTTP status or `<error>`. */
export type RestObserver = ReturnType<typeof createRequestMetrics>;

function createRequestMetrics(families: MetricFamilies) {
  const labels = ["verb", "host"];
  const seconds = (name: string, help: string) => families.histogram({ name, help, labels, buckets: SECONDS });
  const bytes = (name: string, help: string) => families.histogram({ name, help, labels, buckets: BYTES });
  const duration = seconds("rest_client_request_duration_seconds", "Request latency in seconds.");
  const limiter = seconds("rest_client_rate_limiter_duration_seconds", "Time spent waiting for the rate limit.");
  const requestSize = bytes("rest_client_request_size_bytes", "Size of request bodies.");
  const responseSize = bytes("rest_client_response_size_bytes", "Size of answers, watches left out.");
  const requests = families.counter({
    name: "rest_client_requests_total",
    help: "Number of HTTP requests by status code, method, and host.",
    labels: ["code", "method", "host"],
  });
  const retries = families.counter({
    name: "rest_client_request_retries_total",
    help: "Number of requests sent again, by status code, verb, and host.",
    labels: ["code", "verb", "host"],
  });
  return {
    /** A request got response headers or failed. @param elapsed in seconds */
    answered(verb: string, host: string, code: string, elapsed: number): void {
      duration.observe({ verb, host }, elapsed);
      requests.inc({ code, method: verb, host });
    },
    /** A request that failed with `code` was sent again. */
    retried: (verb: string, host: string, code: string): void => retries.inc({ code, verb, host }),
    /** @param waited seconds, possibly 0 */
    rateLimited: (verb: string, host: string, waited: number): void => limiter.observe({ verb, host }, waited),
    requestSize: (verb: string, host: string, bytes: number): void => requestSize.observe({ verb, host }, bytes),
    /** Not called for watches. */
    responseSize: (verb: string, host: string, bytes: number): void => responseSize.observe({ verb, host }, bytes),
  };
}

function createExecPluginMetrics(families: MetricFamilies, clock: Clock): ExecPluginObserver {
  let expiresAtMs = Number.POSITIVE_INFINITY;
  families.scraped(
    "gauge",
    {
      name: "rest_client_exec_plugin_ttl_seconds",
      help: "Seconds until the certificate of an exec plugin expires, +Inf without one.",
    },
    () => (expiresAtMs - clock.now()) / 1000,
  );
  const rotationAge = families.histogram({
    name: "rest_client_exec_plugin_certificate_rotation_age",
    help: "Age in seconds at which certificates of an exec plugin were replaced.",
    buckets: CERTIFICATE_AGE_SECONDS,
  });
  const calls = families.counter({
    name: "rest_client_exec_plugin_call_total",
    help: "Number of calls of an exec plugin by exit code and outcome.",
    labels: ["code", "call_status"],
  });
  return {
    pluginCalled: (code, status) => calls.inc({ code, call_status: status }),
    pluginCertified(now, before) {
      if (before !== undefined) rotationAge.observe((clock.now() - before.validFromMs) / 1000);
      expiresAtMs = now?.validToMs ?? Number.POSITIVE_INFINITY;
    },
  };
}
