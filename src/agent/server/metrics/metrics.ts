/**
 * All measurements of the program, under upstream's names, in one registry. Layers report to small objects; the metrics
 * server renders the text.
 */

import type { GateState } from "../../../contract/config/feature-gates.ts";
import type { SyncMetrics } from "../../../contract/observers.ts";
import { BUILD_FACTS, type BuildInfo } from "../../../metrics/build-info.ts";
import { createFamilies, type MetricFamilies } from "../../../metrics/metric-families.ts";
import type { IpFamily } from "../../../net/ip.ts";
import { defineRuntimeMetrics } from "./runtime-metrics.ts";
import { defineSyncMetrics } from "./sync-metrics.ts";

/** The facts of `kubeproxy_ts_build_info`: what really runs here. */
interface ProgramFacts {
  readonly version: string;
  readonly commit: string;
  /** Version of Node.js. */
  readonly node: string;
  readonly mode: string;
}

/** Upstream's words; none for a generally available feature. */
const STAGES = { Alpha: "ALPHA", Beta: "BETA", GA: "", Deprecated: "DEPRECATED" } as const;

export interface ProxyMetrics {
  /** The object that the proxier of one family reports to. */
  syncMetrics(family: IpFamily): SyncMetrics;
  countHealthz(status: 200 | 503): void;
  countLivez(status: 200 | 503): void;
  setBuildInfo(info: BuildInfo, program: ProgramFacts): void;
  setFeatures(gates: Iterable<GateState>): void;
  /** For families that a layer or proxy mode defines for itself. */
  readonly families: MetricFamilies;
}

function countDefinitions(families: MetricFamilies): void {
  const registered = families.counter({
    name: "registered_metrics_total",
    help: "Number of metric families by stability level and deprecation version.",
    stability: "BETA",
    labels: ["stability_level", "deprecated_version"],
  });
  families.counter({ name: "disabled_metrics_total", help: "Number of disabled families.", stability: "BETA" });
  families.counter({ name: "hidden_metrics_total", help: "Number of hidden families.", stability: "BETA" });
  families.counter({
    name: "cardinality_enforcement_unexpected_categorizations_total",
    help: "Number of label values that were not among the allowed ones.",
  });
  families.onDefine((stability) => {
    if (stability !== "none") registered.inc({ stability_level: stability, deprecated_version: "" });
  });
}

/**
 * Makes the registry with every family of reference health.md §16, iptables-operation.md §14, nftables-operation.md §12 and
 * operation.md §12.3–4 that applies.
 */
export function createMetrics(families: MetricFamilies = createFamilies()): ProxyMetrics {
  const syncMetrics = defineSyncMetrics(families);
  const statusCounter = (kind: "healthz" | "livez") => {
    return families.counter({
      name: `kubeproxy_proxy_${kind}_total`,
      help: `Cumulative proxy ${kind} HTTP status`,
      labels: ["code"],
    });
  };
  const healthz = statusCounter("healthz");
  const livez = statusCounter("livez");
  const buildInfo = families.gauge({
    name: "kubernetes_build_info",
    help: "Constant 1, labelled with the release this program stands in for and what it runs on.",
    stability: "BETA",
    labels: BUILD_FACTS,
  });
  const programInfo = families.gauge({
    name: "kubeproxy_ts_build_info",
    help: "Constant 1, labelled with the version and commit of this program, its Node.js and the proxy mode.",
    stability: "none",
    labels: ["version", "commit", "node", "mode"],
  });
  const featureEnabled = families.gauge({
    name: "kubernetes_feature_enabled",
    help: "Whether a feature gate is on (1) or off (0), with its stage.",
    stability: "BETA",
    labels: ["name", "stage"],
  });
  defineRuntimeMetrics(families);
  countDefinitions(families);

  return {
    syncMetrics,
    countHealthz: (status) => healthz.inc({ code: status }),
    countLivez: (status) => livez.inc({ code: status }),
    setBuildInfo(info, { version, commit, node, mode }) {
      programInfo.set({ version, commit, node, mode }, 1);
      buildInfo.set(info, 1);
    },
    setFeatures(gates) {
      for (const { name, stage, enabled } of gates) featureEnabled.set({ name, stage: STAGES[stage] }, enabled ? 1 : 0);
    },
    families,
  };
}
