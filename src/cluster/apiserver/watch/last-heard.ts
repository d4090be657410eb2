/** How long a resource has not been heard of, as a metric: what a log line per outage cannot tell an alert. */

import type { Clock } from "../../../async/clock.ts";
import type { MetricFamilies } from "../../../metrics/metric-families.ts";

/** Told each time the API server has said something about a resource (plural name). */
export type OnHeard = (resource: string) => void;

/**
 * Defines the gauge. A quiet resource is heard of whenever its watch ends and begins again, every 5 to 10 minutes.
 *
 * @param resources plural names of all that will be watched; the time of the call counts until they are heard of.
 */
export function createLastHeard(families: MetricFamilies, clock: Clock, resources: readonly string[]): OnHeard {
  const gauge = families.gauge({
    name: "kubeproxy_ts_source_last_heard_timestamp_seconds",
    help: "Unix time at which the API server last said anything about a resource; the start until it has.",
    stability: "none",
    labels: ["resource"],
  });
  const onHeard: OnHeard = (resource) => gauge.set({ resource }, clock.now() / 1000);
  for (const resource of resources) onHeard(resource);
  return onHeard;
}
