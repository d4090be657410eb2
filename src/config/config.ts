/**
 * The configuration that the rest of the program uses. One sync period, one masquerade setting: what the active mode's
 * section of the file said (reference configuration.md §3.3). Times are milliseconds.
 *
 * `DraftConfig` is resolved but unchecked, `KubeProxyConfig` has passed `checkConfig` (`validate.ts`). Addresses and
 * prefixes stay the texts of the user, because they are written back as they were; `net/ip.ts` reads them.
 *
 * Fields that are used as the file has them are in tables, from which types, reading and writing are made (`section.ts`).
 */

import type { DocumentOf, SectionFields, SettingsOf } from "./document-fields.ts";
import type { Quantity } from "./quantity.ts";

export const API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";
export const KIND = "KubeProxyConfiguration";

/** How traffic from local pods is recognised. */
export const DETECT_LOCAL_MODES = ["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"] as const;
export type DetectLocalMode = (typeof DETECT_LOCAL_MODES)[number];

/** At the top of the document. */
export const GENERAL_FIELDS = {
  /** The gates that were set, not the effective ones: see `feature-gates.ts`. */
  featureGates: "gates",
  hostnameOverride: "text",
  /** The node's primary address if it is not the unspecified one; nothing is bound to it. */
  bindAddress: "text",
  /** `IP:port`, or empty: no health server. */
  healthzBindAddress: "text",
  metricsBindAddress: "text",
  bindAddressHardFail: "bool",
  enableProfiling: "bool",
  showHiddenMetricsForVersion: "text",
  mode: "proxyMode",
  detectLocalMode: "localMode",
  /** Prefixes, and words that stand for some: `node-port-words.ts`. */
  nodePortAddresses: "texts",
  oomScoreAdj: "optionalInt32",
  configSyncPeriod: "duration",
} as const satisfies SectionFields;

/** At the top as well, and written back only where they are set; upstream knows the first alone. */
export const SELDOM_FIELDS = {
  windowsRunAsService: "bool",
  /** Empty: as the process was started. See `PRIORITY_CLASSES`. */
  windowsPriorityClass: "text",
  /** The name of the release that is copied: see `release.ts`. */
  compatibility: "text",
} as const satisfies SectionFields;

export const CLIENT_FIELDS = {
  kubeconfig: "text",
  acceptContentTypes: "text",
  contentType: "text",
  qps: "float32",
  burst: "int32",
} as const satisfies SectionFields;

export const DETECT_LOCAL_FIELDS = { bridgeInterface: "text", interfaceNamePrefix: "text" } as const;

export const CONNTRACK_FIELDS = {
  maxPerCore: "optionalInt32",
  min: "optionalInt32",
  tcpEstablishedTimeout: "optionalDuration",
  tcpCloseWaitTimeout: "optionalDuration",
  tcpBeLiberal: "bool",
  udpTimeout: "duration",
  udpStreamTimeout: "duration",
} as const satisfies SectionFields;

/** What becomes of connections of TCP to endpoints that are gone, where a Service's annotation does not say; and what is counted. */
export const CONNECTIONS_FIELDS = {
  /** `Gone` or `Never`. */
  endTCP: "text",
  /** How long an endpoint must be gone. */
  endTCPAfter: "optionalDuration",
  /** What the kernel is to count that does not count by itself: a {@link Counted}; another text does not pass the checks. */
  count: "text",
  /** How many Services have metrics of their own, those with most connections; 0: there are no such metrics. */
  countedServices: "int32",
  /** How often it is looked for endpoints that never answer; 0: never. */
  answerCheckPeriod: "duration",
} as const satisfies SectionFields;

export interface VModuleItem {
  readonly filePattern: string;
  readonly verbosity: number;
}

/** Where a log format sends its lines, and how much it may buffer. */
export interface LogOutput {
  readonly splitStream: boolean;
  readonly infoBufferSize: Quantity;
}

export interface LoggingConfig {
  readonly format: string;
  readonly flushFrequencyMs: number;
  /** Whether the flush frequency is written back as a duration text; otherwise as a number of nanoseconds. */
  readonly flushFrequencyAsText: boolean;
  readonly verbosity: number;
  readonly vmodule: readonly VModuleItem[];
  readonly options: { readonly text: LogOutput; readonly json: LogOutput };
}

/**
 * What each mode adds to the configuration, by the name of the mode. A mode declares it itself, in its `index.ts` (`declare module`),
 * so that settings are typed without an import of any mode.
 */
// biome-ignore lint/suspicious/noEmptyInterface: modes fill it
export interface DeclaredModes {}

/** A mode's section: its name, what it is resolved to, and its fields in the file. */
export interface DeclaredSection<
  Name extends string,
  Config extends { readonly fields: SectionFields; resolve(document: never): unknown },
> {
  readonly name: Name;
  readonly resolved: ReturnType<Config["resolve"]>;
  readonly document: DocumentOf<Config["fields"]>;
}

/** The section of every mode, by its name: resolved, or as the file has it. */
export type ModeSections<Form extends "resolved" | "document"> = {
  readonly [M in keyof DeclaredModes as DeclaredModes[M]["name"]]: DeclaredModes[M][Form];
};

export const COUNTED = ["None", "Frontends", "Endpoints"] as const;
export type Counted = (typeof COUNTED)[number];

/** Of settings that have passed the checks. Pure. */
export function countedOf({ count }: DraftConfig["connections"]): Counted {
  return COUNTED.find((one) => one === count) ?? "None";
}

/** Resolved from file, flags and defaults, but not yet checked. */
export interface DraftConfig
  extends ModeSections<"resolved">,
    SettingsOf<typeof GENERAL_FIELDS>,
    SettingsOf<typeof SELDOM_FIELDS> {
  readonly clientConnection: SettingsOf<typeof CLIENT_FIELDS>;
  readonly logging: LoggingConfig;
  readonly syncPeriodMs: number;
  readonly minSyncPeriodMs: number;
  readonly masqueradeAll: boolean;
  /** `clusterCIDR` of the file, split at commas and not trimmed. */
  readonly detectLocal: SettingsOf<typeof DETECT_LOCAL_FIELDS> & { readonly clusterCIDRs: readonly string[] };
  readonly conntrack: SettingsOf<typeof CONNTRACK_FIELDS>;
  readonly connections: SettingsOf<typeof CONNECTIONS_FIELDS>;
}

/** A configuration that has passed every check. */
export interface KubeProxyConfig extends DraftConfig {
  readonly mode: keyof DeclaredModes;
  /** Empty on Windows, where nothing asks for it. */
  readonly detectLocalMode: DetectLocalMode | "";
}
