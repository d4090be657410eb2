/** Every family that the program can define, in whatever mode, told by the code that defines them. */
import { createRestMetrics } from "../../src/cluster/apiserver/rest-metrics.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { createFamilies, type FamilyOptions, type MetricFamilies } from "../../src/server/metric-families.ts";
import { createMetrics } from "../../src/server/metrics.ts";
import { systemClock } from "../../src/sync/clock.ts";
import type { MetricFamily } from "./metrics-document.ts";

export function definedFamilies(): readonly MetricFamily[] {
  const defined: MetricFamily[] = [];
  const record = (type: string, { name, labels = [] }: FamilyOptions, buckets: readonly number[] = []) => {
    defined.push({ name, type, labels: [...labels].sort(), buckets });
  };
  const real = createFamilies();
  const families: MetricFamilies = {
    ...real,
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
    scraped(type, options, read) {
      record(type, options);
      real.scraped(type, options, read);
    },
  };
  const metrics = createMetrics(families);
  metrics.iptablesMetrics("IPv4");
  metrics.nftablesMetrics("IPv4");
  metrics.userspaceMetrics("IPv4");
  metrics.collectNfacct(() => 0, silentLogger);
  createRestMetrics(families, systemClock);
  return defined;
}
