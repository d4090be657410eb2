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
  MODES,
  modeNamed,
  type RegisteredMode,
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
  const { clientConnection, conntrack, detectLocal } = document;
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
    masqueradeAll: sharedField(document, "masqueradeAll") === true,
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

/** The mode whose section has a field that the program has once: the one that runs, or iptables where its section has none. */
export function ownerOf(field: string, mode: string): RegisteredMode {
  const running = findMode(mode) ?? DEFAULT_MODE;
  return Object.hasOwn(running.config.fields, field) ? running : DEFAULT_MODE;
}

function sharedField(document: ConfigurationDocument, field: string): unknown {
  const section = document[sectionNameOf(ownerOf(field, document.mode))];
  return new Map<string, unknown>(Object.entries(section)).get(field);
}

/** The periods that the document's mode uses, nanoseconds; 0 is "not set". Pure. */
export function periodsOf(document: ConfigurationDocument) {
  const period = (field: string): bigint => {
    const value = sharedField(document, field);
    return typeof value === "bigint" ? value : 0n;
  };
  return { syncPeriod: period("syncPeriod"), minSyncPeriod: period("minSyncPeriod") };
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
