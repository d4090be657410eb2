/**
 * The configuration that the rest of the program uses. One sync period, one masquerade setting: what the active mode's
 * section of the file said (reference configuration.md §3.3). Times are milliseconds.
 *
 * `DraftConfig` is resolved but unchecked, `KubeProxyConfig` has passed `checkConfig` (`validate.ts`). Addresses and
 * prefixes stay the texts of the user, because they are written back as they were; `net/ip.ts` reads them.
 */

import type { DocumentOf, SectionFields } from "./document-fields.ts";
import type { Quantity } from "./quantity.ts";

export const API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";
export const KIND = "KubeProxyConfiguration";

/** How traffic from local pods is recognised. */
export const DETECT_LOCAL_MODES = ["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"] as const;
export type DetectLocalMode = (typeof DETECT_LOCAL_MODES)[number];

export interface ClientConnection {
  readonly kubeconfig: string;
  readonly acceptContentTypes: string;
  readonly contentType: string;
  readonly qps: number;
  readonly burst: number;
}

/** A verbosity for source files that match a pattern. */
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

export interface DetectLocalConfig {
  readonly bridgeInterface: string;
  readonly interfaceNamePrefix: string;
  /** `clusterCIDR` of the file, split at commas and not trimmed. */
  readonly clusterCIDRs: readonly string[];
}

export interface ConntrackConfig {
  readonly maxPerCore: number;
  readonly min: number;
  readonly tcpEstablishedTimeoutMs: number;
  readonly tcpCloseWaitTimeoutMs: number;
  readonly tcpBeLiberal: boolean;
  readonly udpTimeoutMs: number;
  readonly udpStreamTimeoutMs: number;
}

export const COUNTED = ["None", "Frontends", "Endpoints"] as const;
export type Counted = (typeof COUNTED)[number];

/** What becomes of connections of TCP to endpoints that are gone, where a Service's annotation does not say; and what is counted. */
export interface ConnectionsConfig {
  /** `Gone` or `Never`. */
  readonly endTCP: string;
  /** How long an endpoint must be gone. */
  readonly endTCPAfterMs: number;
  /** What the kernel is to count that does not count by itself: a {@link Counted}; another text does not pass the checks. */
  readonly count: string;
  /** How many Services have metrics of their own, those with most connections; 0: there are no such metrics. */
  readonly countedServices: number;
  /** How often it is looked for endpoints that never answer; 0: never. */
  readonly answerCheckPeriodMs: number;
}

/** Of settings that have passed the checks. Pure. */
export function countedOf({ count }: ConnectionsConfig): Counted {
  return COUNTED.find((one) => one === count) ?? "None";
}

/** Resolved from file, flags and defaults, but not yet checked. */
export interface DraftConfig extends ModeSections<"resolved"> {
  /** The gates that were set, not the effective ones: see `feature-gates.ts`. */
  readonly featureGates: Readonly<Record<string, boolean>>;
  readonly clientConnection: ClientConnection;
  readonly logging: LoggingConfig;
  readonly hostnameOverride: string;
  /** The node's primary address if it is not the unspecified one; nothing is bound to it. */
  readonly bindAddress: string;
  /** `IP:port`, or empty: no health server. */
  readonly healthzBindAddress: string;
  readonly metricsBindAddress: string;
  readonly bindAddressHardFail: boolean;
  readonly enableProfiling: boolean;
  readonly showHiddenMetricsForVersion: string;
  readonly mode: string;
  readonly syncPeriodMs: number;
  readonly minSyncPeriodMs: number;
  readonly masqueradeAll: boolean;
  readonly detectLocalMode: string;
  readonly detectLocal: DetectLocalConfig;
  /** Prefixes, and words that stand for some: `node-port-words.ts`. */
  readonly nodePortAddresses: readonly string[];
  readonly oomScoreAdj: number;
  readonly conntrack: ConntrackConfig;
  readonly configSyncPeriodMs: number;
  readonly windowsRunAsService: boolean;
  /** Empty: as the process was started. See `PRIORITY_CLASSES`. */
  readonly windowsPriorityClass: string;
  /** The name of the release that is copied: see `release.ts`. */
  readonly compatibility: string;
  readonly connections: ConnectionsConfig;
}

/** A configuration that has passed every check. */
export interface KubeProxyConfig extends DraftConfig {
  readonly mode: keyof DeclaredModes;
  /** Empty on Windows, where nothing asks for it. */
  readonly detectLocalMode: DetectLocalMode | "";
}
