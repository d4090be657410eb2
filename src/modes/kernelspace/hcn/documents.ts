/**
 * The JSON documents of HCN as types. They are written byte for byte as upstream does, and read tolerantly: enums may be
 * numbers or names, absent fields are zero, unknown fields are ignored. Reference windows-hcn.md §4.5, §4.6.
 */
import { jsonIn } from "../../../logging/attempt.ts";
import { type Cidr, type IpAddress, parseCidr, parseIpAddress } from "../../../net/ip.ts";
import { type Guid, parseGuid } from "./guid.ts";
import { isJsonObject, type JsonObject, listOf, numberOf, objectOf, textOf } from "./json-fields.ts";

const SCHEMA = { Major: 2, Minor: 0 } as const;

/** Flags of a load balancer. */
export const LB_DSR = 1;
export const LB_IPV6 = 2;

/** Flags of a port mapping. */
export const MAP_LOCAL_ROUTED_VIP = 2;
export const MAP_USE_MUX = 4;
export const MAP_PRESERVE_DIP = 8;
export const MAP_EXTERNAL_IP = 16;

/** All traffic of a client address goes to one endpoint; 0 distributes connections. */
export const DISTRIBUTE_BY_SOURCE = 2;

/** Flag of an endpoint that stands for an address elsewhere: on another node or outside the cluster. */
const EP_REMOTE = 1;

const PROTOCOL_WORDS = { Unknown: 0, ICMPv4: 1, IGMP: 2, TCP: 6, UDP: 17, ICMPv6: 58, SCTP: 132 };
const LB_WORDS = { None: 0, EnableDirectServerReturn: LB_DSR, EnableIPv6: LB_IPV6 };
const MAP_WORDS = {
  None: 0,
  EnableInternalLoadBalancer: 1,
  LocalRoutedVip: MAP_LOCAL_ROUTED_VIP,
  NotUsed: MAP_USE_MUX,
  EnablePreserveDip: MAP_PRESERVE_DIP,
  IsVipExternalIP: MAP_EXTERNAL_IP,
};
const DISTRIBUTION_WORDS = { None: 0, SourceIPProtocol: 1, SourceIP: DISTRIBUTE_BY_SOURCE };
const EP_WORDS = { None: 0, RemoteEndpoint: EP_REMOTE };

/** Set if HNS answers in another version of the schema than requested: fields may be missing. */
export interface ReadDocument {
  readonly otherSchema?: number;
}

/** Addresses that are on another node. */
export interface RemoteSubnet {
  readonly prefix: Cidr;
  readonly providerAddress: IpAddress;
}

export interface HcnNetwork extends ReadDocument {
  readonly id: Guid;
  readonly name: string;
  /** `Overlay`, `L2Bridge`, …; `NAT` if the document does not say. */
  readonly type: string;
  readonly remoteSubnets: readonly RemoteSubnet[];
}

export interface HcnEndpoint extends ReadDocument {
  readonly id: Guid;
  readonly name: string;
  /** Undefined if HNS does not say. */
  readonly network: Guid | undefined;
  readonly addresses: readonly IpAddress[];
  /** In lower case with colons; empty if HNS does not say. */
  readonly mac: string;
  readonly isRemote: boolean;
  /** On an overlay, that of the node that has the address; undefined if HNS does not say. */
  readonly providerAddress: IpAddress | undefined;
}

export interface PortMapping {
  /** The IANA number. */
  readonly protocol: number;
  readonly internalPort: number;
  readonly externalPort: number;
  readonly distribution: number;
  readonly flags: number;
}

/** The settings of a load balancer other than its endpoints. */
export interface LoadBalancerBehaviour {
  readonly sourceVip: IpAddress | undefined;
  readonly frontendVips: readonly IpAddress[];
  readonly mappings: readonly PortMapping[];
  readonly flags: number;
}

export interface HcnLoadBalancer extends LoadBalancerBehaviour, ReadDocument {
  readonly id: Guid;
  readonly endpoints: readonly Guid[];
}

export interface EndpointSettings {
  readonly network: Guid;
  readonly address: IpAddress;
  /** As it is sent. */
  readonly mac: string;
  readonly isRemote: boolean;
  /** On an overlay, that of the node that has the address. */
  readonly providerAddress?: IpAddress;
}

export interface LoadBalancerSettings {
  readonly endpoints: readonly Guid[];
  readonly sourceVip: IpAddress | undefined;
  /** Undefined: the node's own address. */
  readonly frontendVip: IpAddress | undefined;
  readonly mapping: PortMapping;
  readonly flags: number;
}

/** The conditions of a query; without a filter it lists everything. */
export interface HcnFilter {
  readonly Name?: string;
  readonly ID?: Guid;
  /** For endpoints: those of one network. */
  readonly VirtualNetwork?: Guid;
}

export function queryText(filter?: HcnFilter): string {
  return JSON.stringify({ SchemaVersion: SCHEMA, ...(filter && { Filter: JSON.stringify(filter) }) });
}

export function endpointText({ network, address, mac, isRemote, providerAddress }: EndpointSettings): string {
  const policy = { Type: "ProviderAddress", Settings: { ProviderAddress: providerAddress } };
  return JSON.stringify({
    HostComputeNetwork: network,
    ...(isRemote && providerAddress !== undefined && { Policies: [policy] }),
    IpConfigurations: [{ IpAddress: address }],
    Dns: {},
    MacAddress: mac,
    ...(isRemote && { Flags: EP_REMOTE }),
    Health: { Extra: {} },
    SchemaVersion: SCHEMA,
  });
}

/** The document of a load balancer, for its creation and for every change. */
export function loadBalancerText(settings: LoadBalancerSettings): string {
  const { endpoints, sourceVip, frontendVip, mapping, flags } = settings;
  return JSON.stringify({
    ...(endpoints.length > 0 && { HostComputeEndpoints: endpoints }),
    ...(sourceVip !== undefined && { SourceVIP: sourceVip }),
    ...(frontendVip !== undefined && { FrontendVIPs: [frontendVip] }),
    PortMappings: [
      {
        ...(mapping.protocol !== 0 && { Protocol: mapping.protocol }),
        ...(mapping.internalPort !== 0 && { InternalPort: mapping.internalPort }),
        ...(mapping.externalPort !== 0 && { ExternalPort: mapping.externalPort }),
        ...(mapping.distribution !== 0 && { DistributionType: mapping.distribution }),
        ...(mapping.flags !== 0 && { Flags: mapping.flags }),
      },
    ],
    SchemaVersion: SCHEMA,
    ...(flags !== 0 && { Flags: flags }),
  });
}

/** Why a document could not be read. */
export interface UnreadDocument {
  readonly problem: string;
}

/** The IDs of an enumeration. @throws Error if it is malformed: it must not pass for an empty one. */
export function readIds(text: string): Guid[] {
  if (text === "") return [];
  const what = "the list of HNS objects";
  return listIn(answerIn(text, what), text, what).flatMap((item) => parseGuid(textOf(item)) ?? []);
}

/** The output of a query of the first API version. @throws Error with HNS's reason if the query failed. */
export function readHnsOutput(text: string, path: string): unknown {
  const { Success, Error: reason, Output } = objectOf(answerIn(text, `the answer of HNS to GET ${path}`));
  if (Success === true) return Output;
  throw new Error(`HNS does not answer GET ${path}: ${textOf(reason) || "no reason given"}`);
}

/** A list from the first API version. @throws Error as {@link readHnsOutput}, and if it is not a list. */
export function readHnsList(text: string, path: string): readonly unknown[] {
  return listIn(readHnsOutput(text, path), text, `the answer of HNS to GET ${path}`);
}

const SHOWN = 100;

function answerIn(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not JSON: ${JSON.stringify(text.slice(0, SHOWN))}`, { cause: error });
  }
}

/** A missing value is an empty list, as in Go. */
function listIn(value: unknown, text: string, what: string): readonly unknown[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw new Error(`${what} is not a list: ${JSON.stringify(text.slice(0, SHOWN))}`);
  return value;
}

export function readNetwork(text: string): HcnNetwork | UnreadDocument {
  return readObject(text, (id, document) => ({
    id,
    name: textOf(document.Name),
    type: textOf(document.Type) || "NAT",
    remoteSubnets: listOf(document.Policies).flatMap(remoteSubnet),
  }));
}

/** Leaves out a subnet whose prefix or address is invalid; upstream panics on it (§4.5). */
function remoteSubnet(policy: unknown): RemoteSubnet[] {
  const { Type, Settings } = objectOf(policy);
  if (Type !== "RemoteSubnetRoute") return [];
  const { DestinationPrefix, ProviderAddress } = objectOf(Settings);
  const prefix = parseCidr(textOf(DestinationPrefix));
  const providerAddress = parseIpAddress(textOf(ProviderAddress));
  return prefix === undefined || providerAddress === undefined ? [] : [{ prefix, providerAddress }];
}

export function readEndpoint(text: string): HcnEndpoint | UnreadDocument {
  return readObject(text, (id, document) => ({
    id,
    name: textOf(document.Name),
    network: parseGuid(textOf(document.HostComputeNetwork)),
    addresses: listOf(document.IpConfigurations).flatMap(
      (configuration) => parseIpAddress(textOf(objectOf(configuration).IpAddress)) ?? [],
    ),
    mac: plainMac(textOf(document.MacAddress)),
    isRemote: (numberOf(document.Flags, EP_WORDS) & EP_REMOTE) !== 0,
    providerAddress: providerAddressIn(listOf(document.Policies)),
  }));
}

function providerAddressIn(policies: readonly unknown[]): IpAddress | undefined {
  for (const { Type, Settings } of policies.map(objectOf)) {
    if (Type === "ProviderAddress") return parseIpAddress(textOf(objectOf(Settings).ProviderAddress));
  }
  return undefined;
}

/** Reads the properties of a load balancer, which may have no port mappings (kubernetes #141488). */
export function readLoadBalancer(text: string): HcnLoadBalancer | UnreadDocument {
  return readObject(text, (id, document) => ({
    id,
    endpoints: listOf(document.HostComputeEndpoints).flatMap((endpoint) => parseGuid(textOf(endpoint)) ?? []),
    ...behaviourOf(document),
  }));
}

/** The settings of a load balancer; the IDs of its endpoints may be any strings. @throws SyntaxError if it is not JSON. */
export function readLoadBalancerSettings(
  text: string,
): LoadBalancerBehaviour & { readonly endpoints: readonly string[] } {
  const document = objectOf(JSON.parse(text));
  return { endpoints: listOf(document.HostComputeEndpoints).map(textOf), ...behaviourOf(document) };
}

function behaviourOf(document: JsonObject): LoadBalancerBehaviour {
  return {
    sourceVip: parseIpAddress(textOf(document.SourceVIP)),
    frontendVips: listOf(document.FrontendVIPs).flatMap((vip) => parseIpAddress(textOf(vip)) ?? []),
    mappings: listOf(document.PortMappings).map(portMapping),
    flags: numberOf(document.Flags, LB_WORDS),
  };
}

function portMapping(value: unknown): PortMapping {
  const { Protocol, InternalPort, ExternalPort, DistributionType, Flags } = objectOf(value);
  return {
    protocol: numberOf(Protocol, PROTOCOL_WORDS),
    internalPort: numberOf(InternalPort),
    externalPort: numberOf(ExternalPort),
    distribution: numberOf(DistributionType, DISTRIBUTION_WORDS),
    flags: numberOf(Flags, MAP_WORDS),
  };
}

function readObject<T extends { readonly id: Guid } & ReadDocument>(
  text: string,
  read: (id: Guid, document: JsonObject) => T,
): T | UnreadDocument {
  const document = jsonIn(text);
  if (document === undefined) return { problem: "is not JSON" };
  if (!isJsonObject(document)) return { problem: "is not a JSON object" };
  const id = parseGuid(textOf(document.ID));
  if (id === undefined) return { problem: "has no ID" };
  // HNS has objects of schema versions 0 and 1 (calico #8465), with the same fields; upstream never checks.
  const { Major: major = SCHEMA.Major } = objectOf(document.SchemaVersion);
  return { ...read(id, document), ...(major !== SCHEMA.Major && { otherSchema: numberOf(major) }) };
}

/** A MAC address in one format: HNS writes dashes, Node.js colons. */
export function plainMac(text: string): string {
  return text.toLowerCase().replaceAll("-", ":");
}
