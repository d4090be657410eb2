/** discovery.k8s.io/v1 EndpointSlice → {@link EndpointSliceRecord}. */
import { exactList } from "../../net/compact.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress, specialAddress } from "../../net/ip.ts";
import { PROTOCOLS } from "../../net/protocol.ts";
import {
  type EndpointRecord,
  type EndpointSlicePort,
  type EndpointSliceRecord,
  equalEndpointRecords,
} from "../objects.ts";
import {
  choiceField,
  isAbsent,
  isJsonObject,
  isPortNumber,
  type JsonObject,
  listField,
  objectField,
  portField,
  stringField,
} from "./fields.ts";
import { conclude, type Findings, type Projection, refuse, warn } from "./findings.ts";
import {
  beginObject,
  metadataEntry,
  readName,
  readNamespace,
  readPortName,
  sharedDnsSubdomain,
  sharedNodeName,
  sharedStrings,
} from "./metadata.ts";
import { DNS_SUBDOMAIN_RULE, isDnsLabel, isLabelValue, LABEL_VALUE_RULE } from "./names.ts";
import { podOfTargetRef } from "./pod.ts";

/** Marks slices of headless Services, with any value. */
const HEADLESS_LABEL = "service.kubernetes.io/headless";
const ADDRESS_TYPES = ["IPv4", "IPv6", "FQDN"] as const;
const SERVICE_NAME_LABEL = "kubernetes.io/service-name";
const TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";
const OVER_CAPACITY_ANNOTATION = "endpoints.kubernetes.io/over-capacity";
/** This program's own annotation, and one of the same meaning. */
const WEIGHT_ANNOTATIONS = ["kube-proxy-ts/weight", "service.cilium.io/weight"] as const;
const MOST_WEIGHT = 65_535;
const NO_PORTS: readonly EndpointSlicePort[] = Object.freeze([]);
const NO_ENDPOINTS: readonly EndpointRecord[] = Object.freeze([]);

/** Whether kube-proxy's watch includes this EndpointSlice (reference services.md §1). Accepts invalid objects. */
export function isEndpointSliceSelected(raw: unknown): boolean {
  return metadataEntry(raw, "labels", HEADLESS_LABEL) === undefined;
}

/**
 * Projects an EndpointSlice with the API server's defaults and the proxy's nil rules (reference endpoints.md §5).
 *
 * An endpoint whose address is invalid or of the wrong family is dropped with a warning: the API server rejects such a
 * slice, so it comes from a manifest, and its good endpoints should still work. An FQDN slice is kept without its
 * endpoints, which no proxy uses.
 *
 * @param resourceVersion replaces `metadata.resourceVersion`, for sources whose objects carry a stale one.
 * @param keepsPods keeps pod names, which the daemon does not need.
 * @param before the previous record of the slice: unchanged endpoints are reused, so that they are not in memory twice.
 */
export function projectEndpointSlice(
  raw: unknown,
  resourceVersion?: string,
  keepsPods = false,
  before?: EndpointSliceRecord,
): Projection<EndpointSliceRecord> {
  const { found, object, metadata } = beginObject(raw);
  if (isAbsent(object.addressType)) refuse(found, "addressType", "must be IPv4, IPv6 or FQDN", undefined);
  const addressType = choiceField(found, object.addressType, "addressType", ADDRESS_TYPES, "IPv4");
  const namespace = readNamespace(found, metadata);
  const podNamespace = keepsPods ? namespace : undefined;
  const record: EndpointSliceRecord = {
    namespace,
    name: readName(found, metadata, "subdomain"),
    serviceName: readServiceName(found, object),
    addressType,
    ports: readPorts(found, object.ports),
    endpoints:
      addressType === "FQDN"
        ? NO_ENDPOINTS
        : readEndpoints(found, object, addressType, podNamespace, before?.endpoints),
    lastChangeTriggerTime: readTriggerTime(object),
    resourceVersion: resourceVersion ?? stringField(found, metadata.resourceVersion, "metadata.resourceVersion"),
  };
  const meantFor = keepsPods && record.serviceName === "" ? foreignServiceName(object) : undefined;
  const weight = readWeight(found, object);
  const isCutShort = metadataEntry(object, "annotations", OVER_CAPACITY_ANNOTATION) === "truncated";
  const notes = {
    ...(weight !== undefined && { weight }),
    ...(isCutShort && { isCutShort }),
    ...(meantFor !== undefined && { meantFor }),
  };
  return conclude(found, Object.freeze({ ...record, ...notes }));
}

/** The labels of multi-cluster controllers that name a Service. */
const FOREIGN_NAMES = [
  "multicluster.kubernetes.io/service-name",
  "lighthouse.submariner.io/sourceName",
  "endpointslice.kubernetes.io/service-name",
];

function foreignServiceName(object: JsonObject): string | undefined {
  for (const label of FOREIGN_NAMES) {
    const value = metadataEntry(object, "labels", label);
    if (typeof value === "string" && value !== "") return value;
  }
  return undefined;
}

function readWeight(found: Findings, object: JsonObject): number | undefined {
  for (const name of WEIGHT_ANNOTATIONS) {
    const value = metadataEntry(object, "annotations", name) ?? "";
    if (value === "") continue;
    const isNumber = typeof value === "string" && /^\d{1,5}$/.test(value);
    if (isNumber && Number(value) <= MOST_WEIGHT) return Number(value);
    const rule = `must be a whole number from 0 to ${MOST_WEIGHT}, in quotes; the slice counts as one without a weight`;
    warn(found, `metadata.annotations["${name}"]`, rule, value);
    return undefined;
  }
  return undefined;
}

/** The label's value may be no valid Service name: such a slice belongs to no Service, and leaves its previous one. */
function readServiceName(found: Findings, object: JsonObject): string {
  const value = metadataEntry(object, "labels", SERVICE_NAME_LABEL) ?? "";
  if (typeof value === "string" && isLabelValue(value)) return isDnsLabel(value) ? value : "";
  refuse(found, `metadata.labels["${SERVICE_NAME_LABEL}"]`, LABEL_VALUE_RULE, value);
  return "";
}

function readTriggerTime(object: JsonObject): string {
  const value = metadataEntry(object, "annotations", TRIGGER_TIME_ANNOTATION);
  return typeof value === "string" ? value : "";
}

function readPorts(found: Findings, value: unknown): readonly EndpointSlicePort[] {
  const items = listField(found, value, "ports");
  if (items.length === 0) return NO_PORTS;
  const ports = items.map((item, index) => {
    const path = `ports[${index}]`;
    const entry = objectField(found, item, path);
    return Object.freeze({
      name: readPortName(found, entry.name, `${path}.name`),
      protocol: choiceField(found, entry.protocol, `${path}.protocol`, PROTOCOLS, "TCP"),
      port: readPortNumber(found, entry.port, `${path}.port`),
    });
  });
  return Object.freeze(ports);
}

/** Slices may have ports without a number or with 0; the proxy skips those ports (endpoints.md §5.2). */
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
    // An endpoint without a match is new, or replaces the one at this position.
    next = same < 0 ? next : same + 1;
    if (same < 0 && before.length === items.length) next += 1;
  }
  return Object.freeze(exactList(endpoints));
}

/** The index of an equal endpoint at `from`, or one further on if another was removed; negative if neither is equal. */
function indexOfSame(before: readonly EndpointRecord[], from: number, endpoint: EndpointRecord): number {
  for (let index = from; index < Math.min(from + 2, before.length); index += 1) {
    const candidate = before[index];
    if (candidate !== undefined && equalEndpointRecords(candidate, endpoint)) return index;
  }
  return -1;
}

const sharedZone = sharedStrings((text) => text !== "" && isLabelValue(text));

/**
 * Reads one endpoint. A big cluster has 150,000, so field paths are only built for problems.
 *
 * @param podNamespace the default namespace of pods; undefined: pod names are not kept.
 * @returns `undefined` if the endpoint is dropped (with a warning) or makes the object invalid.
 */
function readEndpoint(
  found: Findings,
  item: unknown,
  index: number,
  family: IpFamily,
  podNamespace?: string,
): EndpointRecord | undefined {
  if (!isJsonObject(item)) {
    refuse(found, `endpoints[${index}]`, "must be an object", item);
    return undefined;
  }
  const address = readAddress(found, item.addresses, index, family);
  const nodeName = sharedNodeName(item.nodeName);
  if (nodeName === undefined) refuse(found, `endpoints[${index}].nodeName`, DNS_SUBDOMAIN_RULE, item.nodeName);
  const conditions = readConditions(found, item.conditions, index);
  const hints = isJsonObject(item.hints) ? item.hints : undefined;
  if (hints === undefined && !isAbsent(item.hints)) {
    refuse(found, `endpoints[${index}].hints`, "must be an object", item.hints);
  }
  if (address === undefined) return undefined;
  const record: EndpointRecord = {
    address,
    nodeName: nodeName ?? "",
    ready: readCondition(found, conditions?.ready, "ready", index, true),
    serving: readCondition(found, conditions?.serving, "serving", index, true),
    terminating: readCondition(found, conditions?.terminating, "terminating", index, false),
    zoneHints: hints && readHints(found, hints.forZones, "forZones", index),
    nodeHints: hints && readHints(found, hints.forNodes, "forNodes", index),
  };
  if (podNamespace === undefined) return Object.freeze(record);
  const pod = podOfTargetRef(item.targetRef, podNamespace);
  const unused = Array.isArray(item.addresses) ? item.addresses.slice(1).filter((one) => typeof one === "string") : [];
  const zone = typeof item.zone === "string" ? sharedZone(item.zone) : undefined;
  return Object.freeze({
    ...record,
    ...(pod !== undefined && { pod }),
    ...(unused.length > 0 && { unused }),
    ...(zone !== undefined && { zone }),
  });
}

/** Reads the first address, without which the endpoint is dropped. The others are unused, but checked. */
function readAddress(found: Findings, value: unknown, index: number, family: IpFamily): IpAddress | undefined {
  if (!Array.isArray(value) || value.length === 0) {
    const field = `endpoints[${index}].addresses`;
    if (isAbsent(value) || Array.isArray(value)) warn(found, field, "is empty; this endpoint is left out", value);
    else refuse(found, field, "must be a list", value);
    return undefined;
  }
  let first: IpAddress | undefined;
  for (let position = 0; position < value.length; position++) {
    const text: unknown = value[position];
    const address = typeof text === "string" ? parseIpAddress(text) : undefined;
    if (address !== undefined && familyOf(address) === family && specialAddress(address) === undefined) {
      first ??= address;
      continue;
    }
    const field = `endpoints[${index}].addresses[${position}]`;
    const lost = position === 0 ? "this endpoint is left out" : "it is left out";
    warn(found, field, `${addressRule(address, family)}; ${lost}`, text);
    if (position === 0) return undefined;
  }
  return first;
}

/** Why an address is dropped. @param address `undefined` if it does not parse. */
function addressRule(address: IpAddress | undefined, family: IpFamily): string {
  if (address === undefined || familyOf(address) !== family) {
    return `must be an ${family} address, as addressType says`;
  }
  return `must be the address of a pod or a host, not a special one (${specialAddress(address)})`;
}

function readConditions(found: Findings, value: unknown, index: number): JsonObject | undefined {
  if (isJsonObject(value)) return value;
  if (!isAbsent(value)) refuse(found, `endpoints[${index}].conditions`, "must be an object", value);
  return undefined;
}

function readCondition(found: Findings, value: unknown, name: string, index: number, ifAbsent: boolean): boolean {
  if (typeof value === "boolean") return value;
  if (!isAbsent(value)) refuse(found, `endpoints[${index}].conditions.${name}`, "must be true or false", value);
  return ifAbsent;
}

function readHints(
  found: Findings,
  value: unknown,
  name: "forZones" | "forNodes",
  index: number,
): readonly string[] | undefined {
  if (isAbsent(value)) return undefined;
  if (!Array.isArray(value)) {
    refuse(found, `endpoints[${index}].hints.${name}`, "must be a list", value);
    return undefined;
  }
  if (value.length === 0) return undefined;
  const hints: string[] = [];
  for (const [position, hint] of value.entries()) {
    const text: unknown = isJsonObject(hint) ? hint.name : undefined;
    const shared = typeof text === "string" ? SHARED_HINTS[name](text) : undefined;
    if (shared !== undefined) hints.push(shared);
    else refuse(found, `endpoints[${index}].hints.${name}[${position}].name`, HINT_RULES[name], text ?? hint);
  }
  return Object.freeze(exactList(hints));
}

const HINT_RULES = { forZones: LABEL_VALUE_RULE, forNodes: DNS_SUBDOMAIN_RULE } as const;
const SHARED_HINTS = { forZones: sharedZone, forNodes: sharedDnsSubdomain } as const;
