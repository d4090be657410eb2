/** discovery.k8s.io/v1 EndpointSlice → {@link EndpointSliceRecord}. */
import { familyOf, type IpAddress, type IpFamily, parseIpAddress, specialAddress } from "../../net/ip.ts";
import { PROTOCOLS } from "../../net/protocol.ts";
import { type EndpointRecord, type EndpointSliceRecord, equalEndpointRecords } from "../objects.ts";
import {
  booleanField,
  choiceField,
  isAbsent,
  isJsonObject,
  isPortNumber,
  itemsField,
  type JsonObject,
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
  const triggerTime = metadataEntry(object, "annotations", TRIGGER_TIME_ANNOTATION);
  const record: EndpointSliceRecord = {
    namespace,
    name: readName(found, metadata, "subdomain"),
    serviceName: readServiceName(found, object),
    addressType,
    ports: itemsField(found, object.ports, "ports", (item) => {
      const port = objectField(found, item, "");
      return Object.freeze({
        name: readPortName(found, port.name, "name"),
        protocol: choiceField(found, port.protocol, "protocol", PROTOCOLS, "TCP"),
        port: readPortNumber(found, port.port, "port"),
      });
    }),
    endpoints:
      addressType === "FQDN"
        ? NO_ENDPOINTS
        : readEndpoints(found, object, addressType, podNamespace, before?.endpoints),
    lastChangeTriggerTime: typeof triggerTime === "string" ? triggerTime : "",
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
  const isAsLong = Array.isArray(object.endpoints) && before.length === object.endpoints.length;
  let next = 0;
  return itemsField(found, object.endpoints, "endpoints", (item) => {
    const endpoint = readEndpoint(found, item, addressType, podNamespace);
    if (endpoint === undefined) return undefined;
    const same = indexOfSame(before, next, endpoint);
    // An endpoint without a match is new, or replaces the one at this position.
    next = same < 0 ? next : same + 1;
    if (same < 0 && isAsLong) next += 1;
    return before[same] ?? endpoint;
  });
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
 * Reads one endpoint.
 *
 * @param podNamespace the default namespace of pods; undefined: pod names are not kept.
 * @returns `undefined` if the endpoint is dropped (with a warning) or makes the object invalid.
 */
function readEndpoint(
  found: Findings,
  item: unknown,
  family: IpFamily,
  podNamespace?: string,
): EndpointRecord | undefined {
  if (!isJsonObject(item)) {
    refuse(found, "", "must be an object", item);
    return undefined;
  }
  const address = readAddress(found, item.addresses, family);
  const nodeName = sharedNodeName(item.nodeName);
  if (nodeName === undefined) refuse(found, "nodeName", DNS_SUBDOMAIN_RULE, item.nodeName);
  const conditions = objectField(found, item.conditions, "conditions");
  const hints = objectField(found, item.hints, "hints");
  if (address === undefined) return undefined;
  const record: EndpointRecord = {
    address,
    nodeName: nodeName ?? "",
    ready: booleanField(found, conditions.ready, "conditions.ready", true),
    serving: booleanField(found, conditions.serving, "conditions.serving", true),
    terminating: booleanField(found, conditions.terminating, "conditions.terminating"),
    zoneHints: readHints(found, hints.forZones, "hints.forZones", sharedZone, LABEL_VALUE_RULE),
    nodeHints: readHints(found, hints.forNodes, "hints.forNodes", sharedDnsSubdomain, DNS_SUBDOMAIN_RULE),
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
function readAddress(found: Findings, value: unknown, family: IpFamily): IpAddress | undefined {
  if (!Array.isArray(value) || value.length === 0) {
    if (isAbsent(value) || Array.isArray(value)) warn(found, "addresses", "is empty; this endpoint is left out", value);
    else refuse(found, "addresses", "must be a list", value);
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
    const lost = position === 0 ? "this endpoint is left out" : "it is left out";
    warn(found, `addresses[${position}]`, `${addressRule(address, family)}; ${lost}`, text);
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

/** @param sharedName the shared copy of a valid name. @param rule of valid names */
function readHints(
  found: Findings,
  value: unknown,
  field: string,
  sharedName: (text: string) => string | undefined,
  rule: string,
): readonly string[] | undefined {
  if (isAbsent(value)) return undefined;
  const hints = itemsField(found, value, field, (hint) => {
    const text: unknown = isJsonObject(hint) ? hint.name : undefined;
    const shared = typeof text === "string" ? sharedName(text) : undefined;
    if (shared === undefined) refuse(found, "name", rule, text ?? hint);
    return shared;
  });
  return hints.length === 0 ? undefined : hints;
}
