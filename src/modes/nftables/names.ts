/** Names of the table and its objects: reference nftables.md §2, §3, §5. */

import { hash } from "node:crypto";
import type { NftFamily, NftSet } from "../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import { type ServicePortName, servicePortKey } from "../../model/service-port-name.ts";
import { base32FromHex } from "../../net/base32.ts";
import { flatText } from "../../net/compact.ts";
import type { IpFamily } from "../../net/ip.ts";
import { PROTOCOLS, protocolName } from "../../net/protocol.ts";

export const FAMILIES: Readonly<Record<IpFamily, NftFamily>> = { IPv4: "ip", IPv6: "ip6" };
export const TABLE = "kube-proxy";
export const TABLE_COMMENT = "rules for kube-proxy";

/** Sets and maps that belong to no service port. */
export const SETS = {
  hairpinConnections: "hairpin-connections",
  clusterIPs: "cluster-ips",
  nodePortIPs: "nodeport-ips",
  noEndpointServices: "no-endpoint-services",
  noEndpointNodePorts: "no-endpoint-nodeports",
  localhostRejectPorts: "localhost-nodeport-reject-ports",
  firewallIPs: "firewall-ips",
  serviceIPs: "service-ips",
  serviceNodePorts: "service-nodeports",
} as const;

/** Chains that belong to no service port. */
export const CHAINS = {
  nodePortEndpointsCheck: "nodeport-endpoints-check",
  serviceEndpointsCheck: "service-endpoints-check",
  firewallCheck: "firewall-check",
  services: "services",
  masquerading: "masquerading",
  clusterIPsCheck: "cluster-ips-check",
  reject: "reject-chain",
} as const;

/** The longest name without its prefix (nftables.md §5.4). */
const BASE_LIMIT = 240;
/** Hexadecimal digits of five bytes, which are eight characters of base32. */
const HASH_DIGITS = 10;

function hashedBase(text: string): string {
  const base = `${base32FromHex(hash("sha256", text, "hex").slice(0, HASH_DIGITS))}-${text}`;
  return base.length > BASE_LIMIT ? `${base.slice(0, BASE_LIMIT - 3)}...` : base;
}

/** The owner in names of chains and sets: `namespace/name/protocol/port`. */
export function portText(name: ServicePortName): string {
  return `${name.namespace}/${name.name}/${protocolName(name.protocol)}/${name.port}`;
}

/** The chains of one service port. */
export interface ServicePortChains {
  readonly cluster: string;
  readonly local: string;
  readonly external: string;
  readonly firewall: string;
}

export function servicePortChains(name: ServicePortName): ServicePortChains {
  const base = hashedBase(portText(name));
  return {
    cluster: flatText("service-", base),
    local: flatText("local-", base),
    external: flatText("external-", base),
    firewall: flatText("firewall-", base),
  };
}

/** The chain and the affinity set of one endpoint of a service port with ClientIP affinity. */
export function endpointNames(
  name: ServicePortName,
  endpoint: Endpoint,
): { readonly chain: string; readonly affinitySet: string } {
  const base = hashedBase(`${portText(name)}__${endpoint.ip.replaceAll(":", ".")}/${endpoint.port}`);
  return { chain: `endpoint-${base}`, affinitySet: `affinity-${base}` };
}

const OWNED = /^(?:service|local|external|firewall|(endpoint|affinity))-[A-Z2-7]{8}-(.*)$/;

/** The {@link portText} in the name of a chain or affinity set; undefined for other names. */
export function portTextOf(name: string): string | undefined {
  const [, ofEndpoint, text] = OWNED.exec(name) ?? [];
  // The limit only cuts off what follows the text: two names of 63 characters and a port name always fit (§5.4).
  return ofEndpoint === undefined ? text : text?.slice(0, Math.max(text.indexOf("__"), 0));
}

/** The key of the service port in the name of a chain or affinity set; undefined for other names. */
export function ownerIn(name: string): string | undefined {
  const [namespace = "", service = "", spelt, port = ""] = portTextOf(name)?.split("/") ?? [];
  const protocol = PROTOCOLS.find((one) => protocolName(one) === spelt);
  return protocol && servicePortKey(namespace, service, port, protocol);
}

/** Whether a chain belongs to a service port: only their names have a slash (nftables.md §5). */
export function isServiceChain(name: string): boolean {
  return name.includes("/");
}

/** The kind of the sets that hold the clients of one endpoint. */
export const AFFINITY_SET: Omit<NftSet, "name"> = { key: ["address"], isMap: false, timeoutSeconds: 1 };

/** Whether a set holds the clients of one endpoint. */
export function isAffinitySet(name: string): boolean {
  return name.startsWith("affinity-");
}

/** Whether a chain or set belongs to a service port. */
export function isOfServicePort(name: string): boolean {
  return isServiceChain(name) || isAffinitySet(name);
}
