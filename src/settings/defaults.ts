/**
 * Defaults: from a decoded document to a resolved configuration. The zero value counts as "not set" for every field
 * that has a default; only the fields that upstream keeps as pointers can be set to zero. Pure.
 * Reference configuration.md §3.1–3.3, health.md §17.
 */

import { appendPortIfNeeded } from "../config/bind-address.ts";
import {
  API_VERSION,
  type DraftConfig,
  KIND,
  type KubeProxyConfig,
  type LoggingConfig,
  type ModeSections,
} from "../config/config.ts";
import { emptyObject, type Struct } from "../config/document-fields.ts";
import {
  CLIENT_CONNECTION,
  CONNECTIONS,
  CONNTRACK,
  type ConfigurationDocument,
  DOCUMENT_FIELDS,
  GENERAL,
  SELDOM,
} from "../config/v1alpha1-document.ts";
import {
  DEFAULT_MODE,
  defaultModeOn,
  findMode,
  isProxyMode,
  MODES,
  modeNamed,
  sectionNameOf,
} from "../dataplane/registry.ts";
import { familyOf, parseIpAddress } from "../net/ip.ts";
import { durationToMs } from "../text/duration.ts";

const SECOND_MS = 1000;

const HEALTHZ_PORT = 10256;
const METRICS_PORT = 10249;
const SYNC_PERIOD_MS = 30 * SECOND_MS;

/** The whole document: its own fields, and the sections of the modes. */
export const CONFIGURATION: Struct = {
  goType: `v1alpha1.${KIND}`,
  fields: { ...DOCUMENT_FIELDS, ...Object.fromEntries(MODES.map((mode) => [sectionNameOf(mode), mode.config])) },
};

/** The document in which nothing is set, as decoding one with only kind and version gives it. */
export const EMPTY_DOCUMENT: ConfigurationDocument = {
  ...emptyObject(CONFIGURATION.fields),
  kind: KIND,
  apiVersion: API_VERSION,
} as unknown as ConfigurationDocument; // its fields are those of the table

/** Applies the defaults to a document and merges its mode sections into one set of values. Pure. */
export function resolveDocument(document: ConfigurationDocument): DraftConfig {
  const { clientConnection, conntrack, detectLocal, mode } = document;
  const general = GENERAL.resolve(document);
  const anyHost = wildcardsFor(general.bindAddress);
  return {
    ...general,
    ...SELDOM.resolve(document),
    clientConnection: CLIENT_CONNECTION.resolve(clientConnection),
    logging: resolveLogging(document.logging),
    healthzBindAddress: appendPortIfNeeded(document.healthzBindAddress || anyHost.healthz, HEALTHZ_PORT),
    metricsBindAddress: appendPortIfNeeded(document.metricsBindAddress || anyHost.metrics, METRICS_PORT),
    ...periods(document),
    masqueradeAll: (masqueradeAllOf(document, mode) ?? masqueradeAllOf(document, DEFAULT_MODE.name)) === true,
    ...resolveSections(document),
    detectLocal: { ...detectLocal, clusterCIDRs: document.clusterCIDR === "" ? [] : document.clusterCIDR.split(",") },
    conntrack: CONNTRACK.resolve(conntrack),
    connections: CONNECTIONS.resolve(document.connections),
  };
}

/** The unspecified and the loopback address of the family of `bindAddress`; a text that is no IPv4 counts as IPv6. */
function wildcardsFor(bindAddress: string): { readonly healthz: string; readonly metrics: string } {
  const address = parseIpAddress(bindAddress);
  return address !== undefined && familyOf(address) === "IPv4"
    ? { healthz: "0.0.0.0", metrics: "127.0.0.1" }
    : { healthz: "::", metrics: "::1" };
}

/** The two periods of a section, nanoseconds; 0 is "not set". */
interface PeriodsDocument {
  readonly syncPeriod: bigint;
  readonly minSyncPeriod: bigint;
}

/** The section of a mode as decoded, whichever fields it has; undefined for a mode that does not exist. */
function sectionOf(document: ConfigurationDocument, mode: string): Readonly<Record<string, unknown>> | undefined {
  return isProxyMode(mode) ? { ...document[sectionNameOf(modeNamed(mode))] } : undefined;
}

function masqueradeAllOf(document: ConfigurationDocument, mode: string): unknown {
  return sectionOf(document, mode)?.masqueradeAll;
}

/** The periods that the document's mode uses: those of its section, or of iptables' where it has none. Pure. */
export function periodsOf(document: ConfigurationDocument): PeriodsDocument {
  const { syncPeriod, minSyncPeriod } = sectionOf(document, document.mode) ?? {};
  if (typeof syncPeriod === "bigint" && typeof minSyncPeriod === "bigint") return { syncPeriod, minSyncPeriod };
  return document[DEFAULT_MODE.name];
}

function periods(document: ConfigurationDocument): Pick<DraftConfig, "syncPeriodMs" | "minSyncPeriodMs"> {
  const { syncPeriod, minSyncPeriod } = periodsOf(document);
  const { config } = findMode(document.mode) ?? DEFAULT_MODE;
  return {
    syncPeriodMs: durationToMs(syncPeriod) || SYNC_PERIOD_MS,
    minSyncPeriodMs: durationToMs(minSyncPeriod) || config.minSyncPeriodMs,
  };
}

/** Which fields belong to which mode is in the descriptors' types, which a loop cannot show TypeScript. */
function resolveSections(document: ConfigurationDocument): ModeSections<"resolved"> {
  return Object.fromEntries(
    MODES.map((mode) => [sectionNameOf(mode), mode.config.resolve(document)]),
  ) as unknown as ModeSections<"resolved">;
}

function resolveLogging(logging: ConfigurationDocument["logging"]): LoggingConfig {
  const { nanoseconds, asText } = logging.flushFrequency;
  const isSet = nanoseconds !== 0n;
  return {
    format: logging.format || "text",
    flushFrequencyMs: isSet ? durationToMs(nanoseconds) : 5 * SECOND_MS,
    flushFrequencyAsText: isSet ? asText : true,
    verbosity: logging.verbosity,
    vmodule: logging.vmodule,
    options: logging.options,
  };
}

/**
 * What the platform adds after file and flags are merged: the mode, the local-traffic detection, and the node's primary
 * addresses for node ports in nftables mode. Pure.
 */
export function applyPlatformDefaults(draft: DraftConfig, platform: NodeJS.Platform = process.platform): DraftConfig {
  const mode = draft.mode || defaultModeOn(platform).name;
  const { nodePortAddresses = [] } = findMode(mode)?.config ?? {};
  return {
    ...draft,
    mode,
    // Nothing asks for it on Windows.
    detectLocalMode: draft.detectLocalMode || (platform === "win32" ? "" : "ClusterCIDR"),
    nodePortAddresses: draft.nodePortAddresses.length === 0 ? nodePortAddresses : draft.nodePortAddresses,
  };
}

/** The time to keep between two syncs: what the user chose, else the active mode's own default. Pure. */
export function shortestSyncPeriodMs(config: KubeProxyConfig, isMinSyncPeriodSet: boolean): number {
  const { restWhenUnsetMs } = modeNamed(config.mode).config;
  return isMinSyncPeriodSet ? config.minSyncPeriodMs : (restWhenUnsetMs ?? config.minSyncPeriodMs);
}
