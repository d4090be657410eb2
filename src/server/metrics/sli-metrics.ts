/** `/metrics/slis`: how the always-on health check of the metrics server went (reference operation.md §9.2). */
import type { Gauge } from "prom-client";
import { createFamilies, type MetricFamilies } from "../../metrics/metric-families.ts";
import { processStartSeconds } from "./runtime-metrics.ts";

export interface SliMetrics {
  /** Records one successful run of a named check. */
  countCheck(name: string): void;
  reset(): void;
  render(): Promise<string>;
  readonly contentType: string;
}

function defineStart(families: MetricFamilies): Gauge {
  return families.gauge({
    name: "process_start_time_seconds",
    help: "Start time of the process since unix epoch in seconds.",
    stability: "none",
  });
}

/** Makes the families of the page, in a registry of their own. */
export function createSliMetrics(): SliMetrics {
  const families = createFamilies();
  const current = families.gauge({
    name: "kubernetes_healthcheck",
    help: "Result of the last run of a health check: 1 when it passed.",
    stability: "STABLE",
    labels: ["name", "type"],
  });
  const total = families.counter({
    name: "kubernetes_healthchecks_total",
    help: "Runs of health checks by result.",
    stability: "STABLE",
    labels: ["name", "status", "type"],
  });
  defineStart(families).set(Math.round(processStartSeconds() * 100) / 100);
  return {
    countCheck(name) {
      current.set({ name, type: "healthz" }, 1);
      total.inc({ name, status: "success", type: "healthz" });
    },
    reset() {
      current.reset();
      total.reset();
    },
    render: () => families.render(),
    contentType: families.contentType,
  };
}
