/** Every family that the program can define, in any mode, told by the code that defines them. */

import { createLastHeard } from "../../src/agent/cluster/apiserver/api-source.ts";
import { createRestMetrics } from "../../src/agent/cluster/apiserver/connection/rest-metrics.ts";
import { defineServiceCounters, defineSilentEndpoints } from "../../src/agent/daemon/counted-connections.ts";
import { defineLeftEndpoints } from "../../src/agent/daemon/left-endpoints.ts";
import { defineConntrackMetrics } from "../../src/agent/server/metrics/conntrack-metrics.ts";
import { createMetrics } from "../../src/agent/server/metrics/metrics.ts";
import { systemClock } from "../../src/async/clock.ts";
import { NO_CONNTRACK } from "../../src/kernel/conntrack/conntrack.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { createFamilies, type FamilyOptions, type MetricFamilies } from "../../src/metrics/metric-families.ts";
import { defineEbpfMetrics } from "../../src/modes/ebpf/metrics.ts";
import { defineIptablesMetrics, defineNfacctMetrics } from "../../src/modes/iptables/metrics.ts";
import { defineKernelspaceMetrics } from "../../src/modes/kernelspace/metrics.ts";
import { defineLocalhostMetrics, defineNftablesMetrics } from "../../src/modes/nftables/metrics.ts";
import type { ProxyMode } from "../../src/modes/registry.ts";
import { defineRestoreMetrics, defineRuleCountMetrics } from "../../src/modes/shared/iptables-metrics.ts";
import { defineUserspaceMetrics } from "../../src/modes/userspace/metrics.ts";
import type { MetricFamily } from "./metrics-document.ts";

/** What each mode defines. */
const OF_MODES: Readonly<Record<ProxyMode, readonly ((families: MetricFamilies) => unknown)[]>> = {
  iptables: [defineIptablesMetrics, (families) => defineNfacctMetrics(families, () => undefined, silentLogger)],
  ipvs: [defineRestoreMetrics],
  nftables: [defineNftablesMetrics, (families) => defineLocalhostMetrics(families, async () => [])],
  // The nftables mode defines those of the packet path.
  ebpf: [defineEbpfMetrics],
  userspace: [defineRestoreMetrics, defineRuleCountMetrics, defineUserspaceMetrics],
  kernelspace: [defineKernelspaceMetrics],
};

export function definedFamilies(): readonly MetricFamily[] {
  const defined = new Map<string, MetricFamily>();
  const common = recording(defined);
  createMetrics(common);
  createRestMetrics(common, systemClock);
  createLastHeard(common, systemClock, []);
  // Modes share families, and a registry takes each name once.
  defineConntrackMetrics(recording(defined), { ...NO_CONNTRACK, statistics: () => Promise.reject(new Error("none")) });
  const counters = { isEndpointTracked: true, fill: async () => [] };
  defineServiceCounters(common, 1, [], counters);
  defineSilentEndpoints(common);
  defineLeftEndpoints(common, []);
  for (const defines of Object.values(OF_MODES)) {
    const families = recording(defined);
    for (const define of defines) define(families);
  }
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
