/** discovery.k8s.io/v1 EndpointSlice → {@link EndpointSliceRecord}. */

import { exactList } from "../../net/exact-list.ts";
import { PROTOCOLS } from "../../net/protocol.ts";
import {
  type EndpointRecord,
  type EndpointSlicePort,
  type EndpointSliceRecord,
  equalEndpointRecords,
} from "../objects.ts";
import { readEndpoint } from "./endpoint.ts";
import {
  choiceField,
  isAbsent,
  isPortNumber,
  type JsonObject,
  listField,
  objectField,
  portField,
  stringField,
} from "./fields.ts";
import { conclude, type Findings, newFindings, type Projection, refuse, warn } from "./findings.ts";
import { metadataEntry, readMetadata, readName, readNamespace } from "./metadata.ts";
import { DNS_LABEL_RULE, isDnsLabel } from "./names.ts";
import { readPortName } from "./service.ts";

const ADDRESS_TYPES = ["IPv4", "IPv6", "FQDN"] as const;
const SERVICE_NAME_LABEL = "kubernetes.io/service-name";
const TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";
const OVER_CAPACITY_ANNOTATION = "endpoints.kubernetes.io/over-capacity";
const NO_PORTS: readonly EndpointSlicePort[] = Object.freeze([]);
const NO_ENDPOINTS: readonly EndpointRecord[] = Object.freeze([]);

/**
 * Projects an EndpointSlice with the API server's defaults and the proxy's nil rules (reference endpoints.md §5). Pure.
 *
 * An address that does not parse or is of the wrong family drops its endpoint with a warning: the API server lets no
 * such slice through, and a thousand good endpoints are worth more than the one. An FQDN slice is kept without its
 * endpoints, which no proxy uses.
 *
 * @param resourceVersion replaces `metadata.resourceVersion`, for sources whose objects carry a stale one.
 * @param keepsPods keeps the names of pods, which the daemon has no use for.
 * @param before the previous record of the slice: unchanged endpoints are taken from it, so that they are not kept twice.
 */
export function projectEndpointSlice(
  raw: unknown,
  resourceVersion?: string,
  keepsPods = false,
  before?: EndpointSliceRecord,
): Projection<EndpointSliceRecord> {
  const found = newFindings();
  const object = objectField(found, raw, "");
  const metadata = readMetadata(found, object);
  if (isAbsent(object.addressType)) refuse(found, "addressType", "must be IPv4, IPv6 or FQDN", undefined);
  const addressType = choiceField(found, object.addressType, "addressType", ADDRESS_TYPES, "IPv4");
  const namespace = readNamespace(found, metadata);
  const podNamespace = keepsPods ? namespace : undefined;
  const record: EndpointSliceRecord = {
    namespace,
    name: readName(found, metadata, "subdomain"),
    serviceName: readServiceName(found, object),
    addressType,
    ports: readPorts(found, object),
    endpoints:
      addressType === "FQDN"
        ? NO_ENDPOINTS
        : readEndpoints(found, object, addressType, podNamespace, before?.endpoints),
    lastChangeTriggerTime: readTriggerTime(object),
    resourceVersion: resourceVersion ?? stringField(found, metadata.resourceVersion, "metadata.resourceVersion"),
  };
  return conclude(found, Object.freeze(isCutShort(object) ? { ...record, isCutShort: true } : record));
}

function isCutShort(object: JsonObject): boolean {
  return metadataEntry(object, "annotations", OVER_CAPACITY_ANNOTATION) === "truncated";
}

function readServiceName(found: Findings, object: JsonObject): string {
  const value = metadataEntry(object, "labels", SERVICE_NAME_LABEL);
  if (value === undefined || value === "") return "";
  if (typeof value === "string" && isDnsLabel(value)) return value;
  refuse(found, `metadata.labels["${SERVICE_NAME_LABEL}"]`, DNS_LABEL_RULE, value);
  return "";
}

function readTriggerTime(object: JsonObject): string {
  const value = metadataEntry(object, "annotations", TRIGGER_TIME_ANNOTATION);
  return typeof value === "string" ? value : "";
}

function readPorts(found: Findings, object: JsonObject): readonly EndpointSlicePort[] {
  const items = listField(found, object.ports, "ports");
  if (items.length === 0) return NO_PORTS;
  return Object.freeze(items.map((item, index) => readPort(found, item, `ports[${index}]`)));
}

function readPort(found: Findings, item: unknown, path: string): EndpointSlicePort {
  const entry = objectField(found, item, path);
  return Object.freeze({
    name: readPortName(found, entry.name, `${path}.name`),
    protocol: choiceField(found, entry.protocol, `${path}.protocol`, PROTOCOLS, "TCP"),
    port: readPortNumber(found, entry.port, `${path}.port`),
  });
}

/** The API lets 0 and absence through in slices; the proxy skips such a port and serves the others (endpoints.md §5.2). */
function readPortNumber(found: Findings, value: unknown, field: string): number | null {
  if (isPortNumber(value)) return value;
  if (isAbsent(value)) return null;
  if (value !== 0) return portField(found, value, field, false);
  warn(found, field, "must be a whole number from 1 to 65535; this port is left out", value);
  return null;
}

function readEndpoints(
  found: Findings,
  object: JsonObject,
  addressType: "IPv4" | "IPv6",
  podNamespace: string | undefined,
  before: readonly EndpointRecord[] = NO_ENDPOINTS,
): readonly EndpointRecord[] {
  const items = listField(found, object.endpoints, "endpoints");
  if (items.length === 0) return NO_ENDPOINTS;
  const endpoints: EndpointRecord[] = [];
  let next = 0;
  for (let index = 0; index < items.length; index++) {
    const endpoint = readEndpoint(found, items[index], index, addressType, podNamespace);
    if (endpoint === undefined) continue;
    const same = indexOfSame(before, next, endpoint);
    endpoints.push(before[same] ?? endpoint);
    // An endpoint that is not found is new, or replaces the one at this position.
    next = same < 0 ? next : same + 1;
    if (same < 0 && before.length === items.length) next += 1;
  }
  return Object.freeze(exactList(endpoints));
}

/** Where an endpoint stands that is the same: there, or one further on when another was taken out. Negative: neither. Pure. */
function indexOfSame(before: readonly EndpointRecord[], from: number, endpoint: EndpointRecord): number {
  for (let index = from; index < Math.min(from + 2, before.length); index += 1) {
    const candidate = before[index];
    if (candidate !== undefined && equalEndpointRecords(candidate, endpoint)) return index;
  }
  return -1;
}
