/**
 * The configuration that the rest of the program uses. It has one sync period and one masquerade setting, from the
 * active mode's section of the file (reference configuration.md §3.3). Times are milliseconds.
 *
 * `DraftConfig` is resolved but unchecked, `KubeProxyConfig` has passed `checkConfig` (`validate.ts`). Addresses and
 * prefixes stay as the user wrote them, because they are written back that way; `net/ip.ts` parses them.
 *
 * Fields that are used as they are in the file stand in tables, which define types, reading and writing (`section.ts`).
 */

import type { DocumentOf, SectionFields, SettingsOf } from "./document-fields.ts";
import type { Quantity } from "./quantity.ts";

export const API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";
export const KIND = "KubeProxyConfiguration";

/** How traffic from local pods is recognised. */
export const DETECT_LOCAL_MODES = ["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"] as const;
/** Fields at the top level of the document. */
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
  /** Prefixes, and the words that stand for prefixes: `node-port-words.ts`. */
  nodePortAddresses: "texts",
  oomScoreAdj: "optionalInt32",
  configSyncPeriod: "duration",
} as const satisfies SectionFields;

/** More top-level fields, written back only if set; upstream knows only the first. */
export const SELDOM_FIELDS = {
  windowsRunAsService: "bool",
  /** Empty: the class with which the process was started. See `PRIORITY_CLASSES`. */
  windowsPriorityClass: "text",
  /** The name of the release to copy: see `release.ts`. */
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

/** What to do with TCP connections to endpoints that are gone, unless the Service's annotation says otherwise; and what to count. */
export const CONNECTIONS_FIELDS = {
  /** `Gone` or `Never`. */
  endTCP: "text",
  /** How long an endpoint must have been gone. */
  endTCPAfter: "optionalDuration",
  /** What the kernel counts beyond its own counters: a {@link Counted}; the checks reject any other text. */
  count: "text",
  /** How many Services, those with the most connections, have metrics of their own; 0: none. */
  countedServices: "int32",
  /** How often to look for endpoints that never answer; 0: never. */
  answerCheckPeriod: "duration",
  /** Whether new connections avoid endpoints that do not answer, unless the Service's annotation says otherwise. */
  leaveUnanswered: "bool",
  /** Percentage of a service port's endpoints that are left out at most; above ten endpoints, two thirds of it. */
  leaveAtMost: "int32",
  /** Percentage of the other nodes with endpoints: if more of them are silent, it is this node, and no endpoint is left out. */
  leaveAtMostNodes: "int32",
  /** How long an endpoint is left out at first, and after relapses. */
  leaveFor: "duration",
  leaveForAtMost: "duration",
} as const satisfies SectionFields;

/** How endpoints are chosen where Services ask for a hash. */
export const BALANCING_FIELDS = {
  /** Of all hashes: the same on every node. */
  seed: "uint32",
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
 * What each mode adds to the configuration, by mode name. Each mode declares its own part in its `index.ts` (`declare module`), so that
 * settings are typed without importing any mode.
 */
// biome-ignore lint/suspicious/noEmptyInterface: modes fill it
export interface DeclaredModes {}

/** A mode's section: its name, its resolved form, and its fields in the file. */
export interface DeclaredSection<
  Name extends string,
  Config extends { readonly fields: SectionFields; resolve(document: never): unknown },
> {
  readonly name: Name;
  readonly resolved: ReturnType<Config["resolve"]>;
  readonly document: DocumentOf<Config["fields"]>;
}

/** The sections of all modes by name: resolved, or as in the file. */
export type ModeSections<Form extends "resolved" | "document"> = {
  readonly [M in keyof DeclaredModes as DeclaredModes[M]["name"]]: DeclaredModes[M][Form];
};

export const COUNTED = ["None", "Frontends", "Endpoints"] as const;
export type Counted = (typeof COUNTED)[number];

/** What to count, from settings that have passed the checks. */
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
  readonly balancing: SettingsOf<typeof BALANCING_FIELDS>;
}

/** A configuration that has passed every check. */
export interface KubeProxyConfig extends DraftConfig {
  readonly mode: keyof DeclaredModes;
  /** Empty on Windows, where nothing reads it. */
  readonly detectLocalMode: (typeof DETECT_LOCAL_MODES)[number] | "";
}
