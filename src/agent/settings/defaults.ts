/**
 * Defaults: from a decoded document to a resolved configuration. For every field with a default, the zero value counts
 * as "not set"; only fields that are pointers upstream can be set to zero.
 * Reference configuration.md §3.1–3.3, health.md §17.
 */

import { appendPortIfNeeded } from "../../contract/config/bind-address.ts";
import {
  API_VERSION,
  type DraftConfig,
  KIND,
  type KubeProxyConfig,
  type LoggingConfig,
  type ModeSections,
} from "../../contract/config/config.ts";
import { emptyObject, type Struct } from "../../contract/config/document-fields.ts";
import type { ConfigurationDocument } from "../../contract/config/v1alpha1-document.ts";
import * as sections from "../../contract/config/v1alpha1-document.ts";
import {
  DEFAULT_MODE,
  defaultModeOn,
  findMode,
  MODES,
  modeNamed,
  type RegisteredMode,
  sectionNameOf,
} from "../../modes/registry.ts";
import { familyOf, parseIpAddress } from "../../net/ip.ts";
import { durationToMs } from "../../text/duration.ts";

const SECOND_MS = 1000;

const HEALTHZ_PORT = 10256;
const METRICS_PORT = 10249;
const SYNC_PERIOD_MS = 30 * SECOND_MS;

/** The whole document: its own fields, and the sections of the modes. */
export const CONFIGURATION: Struct = {
  goType: `v1alpha1.${KIND}`,
  fields: {
    ...sections.DOCUMENT_FIELDS,
    ...Object.fromEntries(MODES.map((mode) => [sectionNameOf(mode), mode.config])),
  },
};

/** The document in which nothing is set, as decoded from one with only kind and version. */
export const EMPTY_DOCUMENT: ConfigurationDocument = {
  ...emptyObject(CONFIGURATION.fields),
  kind: KIND,
  apiVersion: API_VERSION,
} as unknown as ConfigurationDocument; // its fields are those of the table

/** Applies the defaults to a document and merges its mode sections into one set of values. */
export function resolveDocument(document: ConfigurationDocument): DraftConfig {
  const { clientConnection, conntrack, detectLocal } = document;
  const general = sections.GENERAL.resolve(document);
  const anyHost = wildcardsFor(general.bindAddress);
  return {
    ...general,
    ...sections.SELDOM.resolve(document),
    clientConnection: sections.CLIENT_CONNECTION.resolve(clientConnection),
    logging: resolveLogging(document.logging),
    healthzBindAddress: appendPortIfNeeded(document.healthzBindAddress || anyHost.healthz, HEALTHZ_PORT),
    metricsBindAddress: appendPortIfNeeded(document.metricsBindAddress || anyHost.metrics, METRICS_PORT),
    ...periods(document),
    masqueradeAll: sharedField(document, "masqueradeAll") === true,
    ...resolveSections(document),
    detectLocal: { ...detectLocal, clusterCIDRs: document.clusterCIDR === "" ? [] : document.clusterCIDR.split(",") },
    conntrack: sections.CONNTRACK.resolve(conntrack),
    connections: sections.CONNECTIONS.resolve(document.connections),
    balancing: sections.BALANCING.resolve(document.balancing),
  };
}

/** The unspecified and the loopback address of the family of `bindAddress`; a text that is not IPv4 counts as IPv6. */
function wildcardsFor(bindAddress: string): { readonly healthz: string; readonly metrics: string } {
  const address = parseIpAddress(bindAddress);
  return address !== undefined && familyOf(address) === "IPv4"
    ? { healthz: "0.0.0.0", metrics: "127.0.0.1" }
    : { healthz: "::", metrics: "::1" };
}

/** The mode whose section provides a field that the program has only once: the running one, or else iptables. */
export function ownerOf(field: string, mode: string): RegisteredMode {
  const running = findMode(mode) ?? DEFAULT_MODE;
  return Object.hasOwn(running.config.fields, field) ? running : DEFAULT_MODE;
}

function sharedField(document: ConfigurationDocument, field: string): unknown {
  const section = document[sectionNameOf(ownerOf(field, document.mode))];
  return new Map<string, unknown>(Object.entries(section)).get(field);
}

/** The periods that the document's mode uses, in nanoseconds; 0 means "not set". */
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

/** The descriptors' types say which fields belong to which mode; TypeScript cannot follow that through a loop. */
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
 * Adds the platform's defaults after file and flags are merged: the mode, the local-traffic detection, and the node's
 * primary addresses for node ports in nftables mode.
 */
export function applyPlatformDefaults(draft: DraftConfig, platform: NodeJS.Platform = process.platform): DraftConfig {
  const mode = draft.mode || defaultModeOn(platform).name;
  const { nodePortAddresses = [] } = findMode(mode)?.config ?? {};
  return {
    ...draft,
    mode,
    // Nothing reads it on Windows.
    detectLocalMode: draft.detectLocalMode || (platform === "win32" ? "" : "ClusterCIDR"),
    nodePortAddresses: draft.nodePortAddresses.length === 0 ? nodePortAddresses : draft.nodePortAddresses,
  };
}

/** The minimum time between two syncs: the user's choice, or else the active mode's own default. */
export function shortestSyncPeriodMs(config: KubeProxyConfig, isMinSyncPeriodSet: boolean): number {
  const { restWhenUnsetMs } = modeNamed(config.mode).config;
  return isMinSyncPeriodSet ? config.minSyncPeriodMs : (restWhenUnsetMs ?? config.minSyncPeriodMs);
}
