/** The fields of a `KubeProxyConfiguration` beside the sections of the modes, which declare theirs. Reference configuration.md §3.2. */
import type { ModeSections } from "./config.ts";
import type { DocumentOf, Fields } from "./document-fields.ts";
import { Section } from "./section.ts";

const CLIENT_FIELDS = {
  ...({ kubeconfig: "text", acceptContentTypes: "text", contentType: "text" } as const),
  ...({ qps: "float32", burst: "int32" } as const),
};

export const CLIENT_CONNECTION = new Section("clientConnection", CLIENT_FIELDS, {
  ...{ kubeconfig: "", acceptContentTypes: "", contentType: "application/vnd.kubernetes.protobuf", qps: 5, burst: 10 },
});

const DETECT_LOCAL_FIELDS = { bridgeInterface: "text", interfaceNamePrefix: "text" } as const;

export const DETECT_LOCAL = new Section("detectLocal", DETECT_LOCAL_FIELDS, {
  ...{ bridgeInterface: "", interfaceNamePrefix: "" },
});

const CONNTRACK_FIELDS = {
  maxPerCore: "optionalInt32",
  min: "optionalInt32",
  tcpEstablishedTimeout: "optionalDuration",
  tcpCloseWaitTimeout: "optionalDuration",
  tcpBeLiberal: "bool",
  udpTimeout: "duration",
  udpStreamTimeout: "duration",
} as const;

const SECOND_MS = 1_000;
const HOUR_MS = 3_600 * SECOND_MS;

export const CONNTRACK = new Section("conntrack", CONNTRACK_FIELDS, {
  ...{ maxPerCore: 32 * 1024, min: 128 * 1024, tcpBeLiberal: false },
  ...{ tcpEstablishedTimeoutMs: 24 * HOUR_MS, tcpCloseWaitTimeoutMs: HOUR_MS, udpTimeoutMs: 0, udpStreamTimeoutMs: 0 },
});

const CONNECTIONS_FIELDS = {
  endTCP: "text",
  endTCPAfter: "optionalDuration",
  count: "text",
  countedServices: "int32",
  answerCheckPeriod: "duration",
} as const;

export const CONNECTIONS = new Section("connections", CONNECTIONS_FIELDS, {
  ...{ endTCP: "Never", endTCPAfterMs: 5 * SECOND_MS, count: "None", countedServices: 0, answerCheckPeriodMs: 0 },
});

const OUTPUT = { splitStream: "bool", infoBufferSize: "quantity" } as const;

export const DOCUMENT_FIELDS = {
  kind: "text",
  apiVersion: "text",
  featureGates: "gates",
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
  hostnameOverride: "text",
  bindAddress: "text",
  healthzBindAddress: "text",
  metricsBindAddress: "text",
  bindAddressHardFail: "bool",
  enableProfiling: "bool",
  showHiddenMetricsForVersion: "text",
  mode: "proxyMode",
  detectLocalMode: "localMode",
  detectLocal: { goType: "v1alpha1.DetectLocalConfiguration", fields: DETECT_LOCAL_FIELDS },
  clusterCIDR: "text",
  nodePortAddresses: "texts",
  oomScoreAdj: "optionalInt32",
  conntrack: { goType: "v1alpha1.KubeProxyConntrackConfiguration", fields: CONNTRACK_FIELDS },
  configSyncPeriod: "duration",
  // For userspace mode, in the place where releases up to v1.25 had them.
  portRange: "text",
  udpIdleTimeout: "duration",
  windowsRunAsService: "bool",
  // Not upstream's.
  windowsPriorityClass: "text",
  compatibility: "text",
  connections: { goType: "v1alpha1.ConnectionsConfiguration", fields: CONNECTIONS_FIELDS },
} as const satisfies Fields;

/** A decoded `KubeProxyConfiguration` before defaults. */
export interface ConfigurationDocument extends DocumentOf<typeof DOCUMENT_FIELDS>, ModeSections<"document"> {}
