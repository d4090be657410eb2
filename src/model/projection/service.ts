/** core/v1 Service → {@link ServiceRecord}. */
import type { Balancing, Hashing } from "../../net/balancing.ts";
import { END_TCP } from "../../net/flow.ts";
import { familyOf, IP_FAMILIES, type IpFamily, parseIpAddress, specialAddress } from "../../net/ip.ts";
import { PROTOCOLS } from "../../net/protocol.ts";
import type { LoadBalancerIngress, ServiceNotes, ServicePortSpec, ServiceRecord } from "../objects.ts";
import {
  choiceField,
  isAbsent,
  isJsonObject,
  itemsField,
  type JsonObject,
  listField,
  objectField,
  portField,
  stringField,
  stringListField,
} from "./fields.ts";
import { conclude, type Findings, type Projection, refuse, warn } from "./findings.ts";
import { beginObject, metadataEntry, readName, readNamespace, readPortName } from "./metadata.ts";

/** Another proxy serves a Service with this label, with any value. */
export const PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name";
const TYPES = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"] as const;
const AFFINITIES = ["None", "ClientIP"] as const;
const POLICIES = ["Cluster", "Local"] as const;

/** Default and limit of `sessionAffinityConfig.clientIP.timeoutSeconds` in the API. */
const AFFINITY_SECONDS = { byDefault: 10_800, max: 86_400 } as const;
/** An annotation for Windows: reference windows.md §2.1. */
const PRESERVE_DESTINATION = "preserve-destination";
/** This program's own annotation: `Gone` or `Never`. */
const END_TCP_ANNOTATION = "kube-proxy-ts/end-tcp";
/** This program's own annotation: `true` or `false`. */
const LEAVE_ANNOTATION = "kube-proxy-ts/leave-unanswered";
/** This program's own annotation, and Cilium's, whose Maglev hashes flows. */
const BALANCING_ANNOTATIONS: readonly (readonly [name: string, values: Readonly<Record<string, Balancing>>])[] = [
  ["kube-proxy-ts/balancing", { Random: "Random", SourceHash: "SourceHash", FlowHash: "FlowHash" }],
  ["service.cilium.io/lb-algorithm", { random: "Random", maglev: "FlowHash" }],
];

/**
 * Whether kube-proxy's watch includes this Service (reference services.md §1): no proxy-name label, and not headless.
 * Accepts invalid objects: the projection validates them.
 */
export function isServiceSelected(raw: unknown): boolean {
  return metadataEntry(raw, "labels", PROXY_NAME_LABEL) === undefined && !isHeadlessService(raw);
}

/** Whether `spec.clusterIP` is `None`, or would default to it from `spec.clusterIPs`. */
function isHeadlessService(raw: unknown): boolean {
  if (!isJsonObject(raw) || !isJsonObject(raw.spec)) return false;
  const { clusterIP, clusterIPs } = raw.spec;
  if (clusterIP === undefined || clusterIP === null || clusterIP === "") {
    return Array.isArray(clusterIPs) && clusterIPs[0] === "None";
  }
  return clusterIP === "None";
}

/**
 * Projects a Service and applies the API server's defaults (reference services.md §3).
 *
 * Refuses values that the API server would reject and that could get into a rule (names, ports, cluster IPs, enums).
 * Keeps invalid external IPs, ingress IPs and source ranges, which the model skips.
 */
export function projectService(raw: unknown): Projection<ServiceRecord> {
  const { found, object, metadata } = beginObject(raw);
  const spec = objectField(found, object.spec, "spec");
  const addresses = readClusterIps(found, spec);
  const type = choiceField(found, spec.type, "spec.type", TYPES, "ClusterIP");
  const sessionAffinity = choiceField(found, spec.sessionAffinity, "spec.sessionAffinity", AFFINITIES, "None");
  const endTCP = readWord(found, raw, END_TCP_ANNOTATION, END_TCP);
  const balancing = readBalancing(found, raw);
  const leaving = readWord(found, raw, LEAVE_ANNOTATION, ["true", "false"]);
  const mayLackPorts = type === "ExternalName" || addresses.clusterIP === "None";
  const record: ServiceRecord = {
    namespace: readNamespace(found, metadata),
    name: readName(found, metadata, "label"),
    uid: stringField(found, metadata.uid, "metadata.uid"),
    type,
    clusterIP: addresses.clusterIP,
    clusterIPs: addresses.clusterIPs,
    ipFamilies: addresses.ipFamilies,
    ports: readPorts(found, spec, mayLackPorts),
    externalIPs: stringListField(found, spec.externalIPs, "spec.externalIPs"),
    loadBalancerSourceRanges: stringListField(found, spec.loadBalancerSourceRanges, "spec.loadBalancerSourceRanges"),
    loadBalancerIngress: readIngress(found, object),
    sessionAffinity,
    sessionAffinityTimeoutSeconds: sessionAffinity === "ClientIP" ? readAffinityTimeout(found, spec) : 0,
    internalTrafficPolicy: readPolicy(found, spec, "internalTrafficPolicy"),
    externalTrafficPolicy: readPolicy(found, spec, "externalTrafficPolicy"),
    healthCheckNodePort: portField(found, spec.healthCheckNodePort, "spec.healthCheckNodePort", true),
    ...(metadataEntry(raw, "annotations", PRESERVE_DESTINATION) === "true" && { preservesDestination: true }),
    ...(endTCP !== undefined && { endTCP }),
    ...(balancing !== undefined && { balancing }),
    ...(leaving !== undefined && { leaveUnanswered: leaving === "true" }),
  };
  return conclude(found, Object.freeze(record));
}

/** An annotation that is one of these words. */
function readWord<Word extends string>(
  found: Findings,
  raw: unknown,
  annotation: string,
  words: readonly Word[],
): Word | undefined {
  const value = metadataEntry(raw, "annotations", annotation) ?? "";
  const word = words.find((one) => one === value);
  const rule = `must be ${words.map((one) => `"${one}"`).join(" or ")}; it does not count`;
  if (word === undefined && value !== "") warn(found, `metadata.annotations["${annotation}"]`, rule, value);
  return word;
}

/** The hash that a Service asks for. */
function readBalancing(found: Findings, raw: unknown): Hashing | undefined {
  for (const [name, values] of BALANCING_ANNOTATIONS) {
    const value = metadataEntry(raw, "annotations", name) ?? "";
    if (value === "") continue;
    const balancing = typeof value === "string" && Object.hasOwn(values, value) ? values[value] : undefined;
    const rule = `must be ${Object.keys(values).join(" or ")}; endpoints are chosen at random`;
    if (balancing === undefined) warn(found, `metadata.annotations["${name}"]`, rule, value);
    return balancing === "Random" ? undefined : balancing;
  }
  return undefined;
}

function readPolicy(
  found: Findings,
  spec: JsonObject,
  name: "internalTrafficPolicy" | "externalTrafficPolicy",
): "Cluster" | "Local" {
  return choiceField(found, spec[name], `spec.${name}`, POLICIES, "Cluster");
}

function readPorts(found: Findings, spec: JsonObject, mayLackPorts: boolean): readonly ServicePortSpec[] {
  const problemsBefore = found.problems.length;
  const ports = itemsField(found, spec.ports, "spec.ports", (item) => {
    const port = objectField(found, item, "");
    return Object.freeze({
      name: readPortName(found, port.name, "name"),
      protocol: choiceField(found, port.protocol, "protocol", PROTOCOLS, "TCP"),
      port: portField(found, port.port, "port", false),
      nodePort: portField(found, port.nodePort, "nodePort", true),
    });
  });
  if (ports.length === 0 && !mayLackPorts) refuse(found, "spec.ports", "must have at least one port", spec.ports);
  if (ports.length > 1 && found.problems.length === problemsBefore) refuseDuplicates(found, ports);
  return ports;
}

/** Two ports with one name would be one service port, and two with one number one address: the API rejects both. */
function refuseDuplicates(found: Findings, ports: readonly ServicePortSpec[]): void {
  const names = new Set<string>();
  const numbers = new Set<string>();
  for (const [index, { name, port, protocol }] of ports.entries()) {
    const number = `${port}/${protocol}`;
    if (names.has(name)) {
      refuse(found, `spec.ports[${index}].name`, "must be there and be unique when a Service has several ports", name);
    }
    if (numbers.has(number)) {
      refuse(found, `spec.ports[${index}].port`, `must be unique within its protocol (${protocol})`, port);
    }
    names.add(name);
    numbers.add(number);
  }
}

function readAffinityTimeout(found: Findings, spec: JsonObject): number {
  const config = objectField(found, spec.sessionAffinityConfig, "spec.sessionAffinityConfig");
  const clientIP = objectField(found, config.clientIP, "spec.sessionAffinityConfig.clientIP");
  const seconds = clientIP.timeoutSeconds;
  if (isAbsent(seconds)) return AFFINITY_SECONDS.byDefault;
  if (typeof seconds === "number" && Number.isInteger(seconds) && seconds >= 1 && seconds <= AFFINITY_SECONDS.max) {
    return seconds;
  }
  const allowed = `must be a whole number of seconds from 1 to ${AFFINITY_SECONDS.max}`;
  refuse(found, "spec.sessionAffinityConfig.clientIP.timeoutSeconds", allowed, seconds);
  return AFFINITY_SECONDS.byDefault;
}

function readIngress(found: Findings, object: JsonObject): readonly LoadBalancerIngress[] {
  const status = objectField(found, object.status, "status");
  const loadBalancer = objectField(found, status.loadBalancer, "status.loadBalancer");
  return itemsField(found, loadBalancer.ingress, "status.loadBalancer.ingress", (item) => {
    const entry = objectField(found, item, "");
    const ip = stringField(found, entry.ip, "ip");
    const ipMode = isAbsent(entry.ipMode) ? "VIP" : entry.ipMode;
    if (ip === "") return undefined;
    if (ipMode === "VIP" || ipMode === "Proxy") return Object.freeze({ ip, ipMode });
    warn(found, "ipMode", "must be VIP or Proxy; this ingress is left out", ipMode);
    return undefined;
  });
}

/** Never fails: omits invalid values, which the projection reports. */
export function readServiceNotes(raw: unknown): ServiceNotes {
  const { found, object, metadata } = beginObject(raw);
  const status = objectField(found, object.status, "status");
  const { ingress } = objectField(found, status.loadBalancer, "status.loadBalancer");
  const { selector } = objectField(found, object.spec, "spec");
  const proxyName = metadataEntry(raw, "labels", PROXY_NAME_LABEL);
  return {
    namespace: readNamespace(found, metadata),
    name: readName(found, metadata, "label"),
    isHeadless: isHeadlessService(raw),
    proxyName: proxyName === undefined ? undefined : String(proxyName),
    selector: isJsonObject(selector)
      ? Object.entries(selector)
          .map(([key, value]) => `${key}=${value}`)
          .join(",")
      : "",
    hostNames: listField(found, ingress, "").flatMap((item) =>
      isJsonObject(item) && typeof item.hostname === "string" && item.hostname !== "" ? item.hostname : [],
    ),
  };
}

/** Shared lists: nearly every Service has one of these. */
const COMMON_FAMILIES = new Map<string, readonly IpFamily[]>([
  ["", Object.freeze([])],
  ["IPv4", Object.freeze(["IPv4" as const])],
  ["IPv6", Object.freeze(["IPv6" as const])],
  ["IPv4,IPv6", Object.freeze(["IPv4" as const, "IPv6" as const])],
  ["IPv6,IPv4", Object.freeze(["IPv6" as const, "IPv4" as const])],
]);

/**
 * Reads the three fields as the API server stores them: `clusterIP` and `clusterIPs` default to each other, and
 * `ipFamilies` to the families of the addresses. If `ipFamilies` contradicts an address, the address wins with a
 * warning, so the Service keeps working in the family of its address.
 */
function readClusterIps(found: Findings, spec: JsonObject) {
  const single = stringField(found, spec.clusterIP, "spec.clusterIP");
  const listed = stringListField(found, spec.clusterIPs, "spec.clusterIPs");
  const declared = readFamilies(found, spec);
  const clusterIPs = listed.length === 0 && single !== "" ? Object.freeze([single]) : listed;
  const first = clusterIPs[0] ?? "";
  if (single !== "" && !isSameAddress(single, first)) {
    refuse(found, "spec.clusterIPs[0]", `must be the same as spec.clusterIP (${JSON.stringify(single)})`, first);
  }
  if (first === "" || first === "None") return { clusterIP: first, clusterIPs, ipFamilies: declared };
  const firstField = listed.length === 0 ? "spec.clusterIP" : "spec.clusterIPs[0]";
  return { clusterIP: first, clusterIPs, ipFamilies: checkedFamilies(found, clusterIPs, firstField, declared) };
}

function checkedFamilies(
  found: Findings,
  clusterIPs: readonly string[],
  firstField: string,
  declared: readonly IpFamily[],
): readonly IpFamily[] {
  const actual: IpFamily[] = [];
  for (const [index, text] of clusterIPs.entries()) {
    const address = parseIpAddress(text);
    const field = index === 0 ? firstField : `spec.clusterIPs[${index}]`;
    if (address === undefined) {
      refuse(found, field, "must be an IP address, or absent", text);
      continue;
    }
    const special = specialAddress(address);
    if (special !== undefined) {
      refuse(found, field, `must be an address of a Service CIDR, not a special one (${special})`, text);
    }
    const family = familyOf(address);
    if (actual.includes(family)) {
      refuse(found, `spec.clusterIPs[${index}]`, "must be of the other IP family than the one before it", text);
    }
    const wanted = declared[index];
    if (wanted !== undefined && wanted !== family) {
      warn(found, `spec.ipFamilies[${index}]`, `contradicts the cluster IP ${address}; taken as ${family}`, wanted);
    }
    actual.push(family);
  }
  for (const family of declared.slice(actual.length)) if (!actual.includes(family)) actual.push(family);
  return sharedFamilies(actual);
}

function readFamilies(found: Findings, spec: JsonObject): readonly IpFamily[] {
  return sharedFamilies(
    itemsField(found, spec.ipFamilies, "spec.ipFamilies", (item) => choiceField(found, item, "", IP_FAMILIES, "IPv4")),
  );
}

function sharedFamilies(families: readonly IpFamily[]): readonly IpFamily[] {
  return COMMON_FAMILIES.get(families.join(",")) ?? Object.freeze([...families]);
}

function isSameAddress(a: string, b: string): boolean {
  return a === b || (parseIpAddress(a) ?? a) === (parseIpAddress(b) ?? b);
}
