/** Every family that the program can define, in any mode, told by the code that defines them. */

import { createLastHeard } from "../../src/agent/cluster/apiserver/api-source.ts";
import { createRestMetrics } from "../../src/agent/cluster/apiserver/connection/rest-metrics.ts";
import { defineServiceCounters, defineSilentEndpoints } from "../../src/agent/daemon/counted-connections.ts";
import { defineConntrackMetrics } from "../../src/agent/server/metrics/conntrack-metrics.ts";
import { createMetrics } from "../../src/agent/server/metrics/metrics.ts";
import { systemClock } from "../../src/async/clock.ts";
import { NO_CONNTRACK } from "../../src/kernel/conntrack/conntrack.ts";
import { createFamilies, type FamilyOptions, type MetricFamilies } from "../../src/metrics/metric-families.ts";
import { MODES } from "../../src/modes/registry.ts";
import type { MetricFamily } from "./metrics-document.ts";

export async function definedFamilies(): Promise<readonly MetricFamily[]> {
  const defined = new Map<string, MetricFamily>();
  const runtimes = await Promise.all(MODES.map((mode) => mode.loadRuntime()));
  const common = recording(defined);
  createMetrics(common);
  createRestMetrics(common, systemClock);
  createLastHeard(common, systemClock, []);
  // Modes share families, and a registry takes each name once.
  defineConntrackMetrics(recording(defined), { ...NO_CONNTRACK, statistics: () => Promise.reject(new Error("none")) });
  const counters = { isEndpointTracked: true, fill: async () => [] };
  defineServiceCounters(common, 1, [], counters);
  defineSilentEndpoints(common);
  for (const runtime of runtimes) runtime.defineMetrics(recording(defined));
  return [...defined.values()];
}

/** A registry that notes what is defined in it. */
function recording(defined: Map<string, MetricFamily>): MetricFamilies {
  const record = (type: string, { name, labels = [] }: FamilyOptions, buckets: readonly number[] = []) => {
    defined.set(name, { name, type, labels: [...labels].sort(), buckets });
  };
  const real = createFamilies();
  return {
    ...real,
    familyCounter(options) {
      record("counter", { ...options, labels: ["ip_family"] });
      return real.familyCounter(options);
    },
    counter(options) {
      record("counter", options);
      return real.counter(options);
    },
    gauge(options) {
      record("gauge", options);
      return real.gauge(options);
    },
    histogram(options) {
      record("histogram", options, options.buckets);
      return real.histogram(options);
    },
    scrapedSamples(options, read) {
      record("counter", options);
      real.scrapedSamples(options, read);
    },
    scraped(type, options, read) {
      record(type, options);
      real.scraped(type, options, read);
    },
  };
}
