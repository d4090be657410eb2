/** The fields of a `KubeProxyConfiguration`, except the modes' sections, which the modes declare. Reference configuration.md §3.2. */
import { DEFAULT_HASH_SEED } from "../../net/balancing.ts";
import {
  BALANCING_FIELDS,
  CLIENT_FIELDS,
  CONNECTIONS_FIELDS,
  CONNTRACK_FIELDS,
  DETECT_LOCAL_FIELDS,
  GENERAL_FIELDS,
  type ModeSections,
  SELDOM_FIELDS,
} from "./config.ts";
import type { DocumentOf, Fields } from "./document-fields.ts";
import { CURRENT_RELEASE } from "./release.ts";
import { Section } from "./section.ts";

const SECOND_MS = 1_000;
const HOUR_MS = 3_600 * SECOND_MS;

export const GENERAL = new Section(undefined, GENERAL_FIELDS, {
  ...{
    featureGates: {},
    hostnameOverride: "",
    mode: "",
    detectLocalMode: "",
    nodePortAddresses: [],
    oomScoreAdj: -999,
  },
  // For IPv4: `resolveDocument` adapts them to the family of `bindAddress`.
  ...{ bindAddress: "0.0.0.0", healthzBindAddress: "0.0.0.0:10256", metricsBindAddress: "127.0.0.1:10249" },
  ...{ bindAddressHardFail: false, enableProfiling: false, showHiddenMetricsForVersion: "" },
  configSyncPeriodMs: 15 * 60 * SECOND_MS,
});

export const SELDOM = new Section(undefined, SELDOM_FIELDS, {
  ...{ windowsRunAsService: false, windowsPriorityClass: "", compatibility: CURRENT_RELEASE.name },
});

export const CLIENT_CONNECTION = new Section("clientConnection", CLIENT_FIELDS, {
  ...{ kubeconfig: "", acceptContentTypes: "", contentType: "application/vnd.kubernetes.protobuf", qps: 5, burst: 10 },
});

export const DETECT_LOCAL = new Section("detectLocal", DETECT_LOCAL_FIELDS, {
  ...{ bridgeInterface: "", interfaceNamePrefix: "" },
});

export const CONNTRACK = new Section("conntrack", CONNTRACK_FIELDS, {
  ...{ maxPerCore: 32 * 1024, min: 128 * 1024, tcpBeLiberal: false },
  ...{ tcpEstablishedTimeoutMs: 24 * HOUR_MS, tcpCloseWaitTimeoutMs: HOUR_MS, udpTimeoutMs: 0, udpStreamTimeoutMs: 0 },
});

export const CONNECTIONS = new Section("connections", CONNECTIONS_FIELDS, {
  ...{ endTCP: "Never", endTCPAfterMs: 5 * SECOND_MS, count: "None", countedServices: 0, answerCheckPeriodMs: 0 },
  ...{ leaveUnanswered: false, leaveAtMost: 50, leaveAtMostNodes: 50 },
  ...{ leaveForMs: 10 * SECOND_MS, leaveForAtMostMs: 5 * 60 * SECOND_MS },
});

export const BALANCING = new Section("balancing", BALANCING_FIELDS, { seed: DEFAULT_HASH_SEED });

const OUTPUT = { splitStream: "bool", infoBufferSize: "quantity" } as const;

export const DOCUMENT_FIELDS = {
  kind: "text",
  apiVersion: "text",
  clientConnection: { goType: "v1alpha1.ClientConnectionConfiguration", fields: CLIENT_FIELDS },
  logging: {
    goType: "v1.LoggingConfiguration",
    fields: {
      format: "text",
      flushFrequency: "flushFrequency",
      verbosity: "verbosity",
      vmodule: {
        goType: "v1.VModuleConfiguration",
        each: { goType: "v1.VModuleItem", fields: { filePattern: "text", verbosity: "verbosity" } },
      },
      options: {
        goType: "v1.FormatOptions",
        fields: {
          text: { goType: "v1.TextOptions", fields: OUTPUT },
          json: { goType: "v1.JSONOptions", fields: OUTPUT },
        },
      },
    },
  },
  ...GENERAL_FIELDS,
  detectLocal: { goType: "v1alpha1.DetectLocalConfiguration", fields: DETECT_LOCAL_FIELDS },
  clusterCIDR: "text",
  conntrack: { goType: "v1alpha1.KubeProxyConntrackConfiguration", fields: CONNTRACK_FIELDS },
  // For userspace mode, where releases up to v1.25 had them.
  portRange: "text",
  udpIdleTimeout: "duration",
  ...SELDOM_FIELDS,
  // Not upstream's.
  connections: { goType: "v1alpha1.ConnectionsConfiguration", fields: CONNECTIONS_FIELDS },
  balancing: { goType: "v1alpha1.BalancingConfiguration", fields: BALANCING_FIELDS },
} as const satisfies Fields;

/** A decoded `KubeProxyConfiguration` before defaults. */
export interface ConfigurationDocument extends DocumentOf<typeof DOCUMENT_FIELDS>, ModeSections<"document"> {}
