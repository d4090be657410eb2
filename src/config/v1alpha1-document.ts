/** The fields of a `KubeProxyConfiguration` beside the sections of the modes, which declare theirs. Reference configuration.md §3.2. */
import type { ModeSections } from "./config.ts";
import type { DocumentOf, Fields } from "./document-fields.ts";

const OUTPUT = { splitStream: "bool", infoBufferSize: "quantity" } as const;

export const DOCUMENT_FIELDS = {
  kind: "text",
  apiVersion: "text",
  featureGates: "gates",
  clientConnection: {
    goType: "v1alpha1.ClientConnectionConfiguration",
    fields: { kubeconfig: "text", acceptContentTypes: "text", contentType: "text", qps: "float32", burst: "int32" },
  },
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
  detectLocal: {
    goType: "v1alpha1.DetectLocalConfiguration",
    fields: { bridgeInterface: "text", interfaceNamePrefix: "text" },
  },
  clusterCIDR: "text",
  nodePortAddresses: "texts",
  oomScoreAdj: "optionalInt32",
  conntrack: {
    goType: "v1alpha1.KubeProxyConntrackConfiguration",
    fields: {
      maxPerCore: "optionalInt32",
      min: "optionalInt32",
      tcpEstablishedTimeout: "optionalDuration",
      tcpCloseWaitTimeout: "optionalDuration",
      tcpBeLiberal: "bool",
      udpTimeout: "duration",
      udpStreamTimeout: "duration",
    },
  },
  configSyncPeriod: "duration",
  // For userspace mode, in the place where releases up to v1.25 had them.
  portRange: "text",
  udpIdleTimeout: "duration",
  windowsRunAsService: "bool",
  // Not upstream's.
  windowsPriorityClass: "text",
  compatibility: "text",
  connections: {
    goType: "v1alpha1.ConnectionsConfiguration",
    fields: {
      ...{ endTCP: "text", endTCPAfter: "optionalDuration" },
      ...{ count: "text", countedServices: "int32", answerCheckPeriod: "duration" },
    },
  },
} as const satisfies Fields;

/** A decoded `KubeProxyConfiguration` before defaults. */
export interface ConfigurationDocument extends DocumentOf<typeof DOCUMENT_FIELDS>, ModeSections<"document"> {}
