/**
 * The part of a cluster that one packet can meet, so that a trace among 10,000 services makes the model and the plan of a handful. Where
 * what is shared by all depends on which kinds of Services there are, one of each kind is in it. Pure.
 */
import { type EndpointSliceRecord, objectKeyText, type ServiceRecord } from "../cluster/objects.ts";
import { type IpAddress, parseIpAddress } from "../net/ip.ts";
import type { Objects } from "./part-of-cluster.ts";
import { slicesByService } from "./part-of-cluster.ts";
import { kindOfService } from "./service-kind.ts";

/** Where a packet goes, as it reaches the node. */
export interface PacketEnd {
  readonly destination: IpAddress;
  readonly port: number;
  /** Short chains are shown rule by rule, so that those of kinds with few members are needed, too. @default false */
  readonly showsEveryRule?: boolean;
}

/** As many rules make a chain long: of others, each rule is shown that does not match (`trace/iptables/ruleset.ts`). */
export const FEW_OF_A_KIND = 16;

/** What one packet can meet, and how much stands around it. */
interface PacketPart {
  readonly objects: Objects;
  /** The other Services, as `namespace/name`: each has as many rules as one of `objects`, whose name this gives. */
  readonly others: ReadonlyMap<string, string>;
}

/** A Service with what it has. */
interface Entry {
  readonly service: ServiceRecord;
  /** `namespace/name` */
  readonly name: string;
  readonly slices: readonly EndpointSliceRecord[];
  /** All that it declares; one that it declares twice is here twice. */
  readonly addresses: readonly string[];
}

/** Services that differ in names, addresses and numbers alone. */
interface Kind {
  /** By name. */
  first: Entry;
  /** Some. */
  readonly members: Entry[];
}

/**
 * The objects of these Services alone: those that have the destination as an address, an endpoint or a node port; those that have
 * an endpoint of these as their address, or its port as a node port, where packets are looked at once more on their way there; those
 * that compete for a frontend; one of each kind; and all that share an address or a node port with any of them.
 *
 * @param nodeName decides which endpoints are local.
 */
export function partForPacket(objects: Objects, nodeName: string, end: PacketEnd): PacketPart {
  const entries = entriesOf(objects);
  const competing = competitors(entries);
  const chosen = new Set(competing);
  const next = new Set<string | number>();
  for (const entry of entries) {
    const isFrontend = answersAt(entry, end);
    if (isFrontend) for (const place of placesBehind(entry)) next.add(place);
    if (isFrontend || hasEndpoint(entry, end.destination)) chosen.add(entry);
  }
  const kinds = new Map<string, Kind>();
  const kindOf = new Map<Entry, string>();
  for (const entry of entries) {
    if (isAtOneOf(entry, next)) chosen.add(entry);
    // What has lost a frontend stands for no other.
    if (competing.has(entry)) continue;
    const kind = kindOfService(entry.service, entry.slices, nodeName);
    kindOf.set(entry, kind);
    const known = kinds.get(kind);
    if (known === undefined) kinds.set(kind, { first: entry, members: [entry] });
    else {
      if (entry.name < known.first.name) known.first = entry;
      if (known.members.length < FEW_OF_A_KIND) known.members.push(entry);
    }
  }
  for (const { first, members } of kinds.values()) {
    chosen.add(first);
    if (end.showsEveryRule === true && members.length < FEW_OF_A_KIND) for (const entry of members) chosen.add(entry);
  }
  const isNear = neighboursOf(chosen);
  const part: Entry[] = [];
  const others = new Map<string, string>();
  for (const entry of entries) {
    const like = kinds.get(kindOf.get(entry) ?? "")?.first;
    if (chosen.has(entry) || isNear(entry) || like === undefined) part.push(entry);
    else others.set(entry.name, like.name);
  }
  const services = part.map(({ service }) => service);
  return { objects: { ...objects, services, endpointSlices: part.flatMap(({ slices }) => slices) }, others };
}

const NO_SLICES: readonly EndpointSliceRecord[] = [];

function entriesOf({ services, endpointSlices }: Objects): Entry[] {
  const slices = slicesByService(endpointSlices);
  return services.map((service) => {
    const name = objectKeyText(service);
    return { service, name, slices: slices.get(name) ?? NO_SLICES, addresses: addressesOf(service) };
  });
}

function addressesOf({ clusterIP, clusterIPs, externalIPs, loadBalancerIngress }: ServiceRecord): string[] {
  const found: string[] = [];
  const add = (text: string) => {
    const address = parseIpAddress(text);
    if (address !== undefined) found.push(address);
  };
  for (const text of clusterIPs) add(text);
  if (!clusterIPs.includes(clusterIP)) add(clusterIP);
  for (const text of externalIPs) add(text);
  for (const { ip } of loadBalancerIngress) add(ip);
  return found;
}

function answersAt({ service, addresses }: Entry, { destination, port }: PacketEnd): boolean {
  const { healthCheckNodePort, ports } = service;
  return (
    healthCheckNodePort === port || ports.some(({ nodePort }) => nodePort === port) || addresses.includes(destination)
  );
}

/** The addresses of its endpoints, and their ports. */
function* placesBehind({ slices }: Entry): Generator<string | number, void> {
  for (const { endpoints, ports } of slices) {
    for (const { address } of endpoints) yield address;
    for (const { port } of ports) if (port !== null && port > 0) yield port;
  }
}

function isAtOneOf({ service, addresses }: Entry, places: ReadonlySet<string | number>): boolean {
  const { healthCheckNodePort, ports } = service;
  if (places.has(healthCheckNodePort) || ports.some(({ nodePort }) => places.has(nodePort))) return true;
  return addresses.some((address) => places.has(address));
}

function hasEndpoint({ slices }: Entry, destination: string): boolean {
  return slices.some(({ endpoints }) => endpoints.some(({ address }) => address === destination));
}

type Port = ServiceRecord["ports"][number];

const nodePortKey = ({ protocol, nodePort }: Port): string => `${protocol} ${nodePort}`;

/** Those that declare a frontend that another declares as well, or that have one twice: who gets it is not a matter of kind. */
function competitors(entries: readonly Entry[]): Set<Entry> {
  const competing = new Set<Entry>();
  const sharing = new Set<Entry>();
  const byAddress = new Map<string, Entry>();
  const byNodePort = new Map<string, Entry>();
  const put = (owners: Map<string, Entry>, key: string, entry: Entry, found: Set<Entry>) => {
    const other = owners.get(key);
    if (other === undefined) owners.set(key, entry);
    else found.add(entry).add(other);
  };
  for (const entry of entries) {
    const { ports } = entry.service;
    for (const address of entry.addresses) put(byAddress, address, entry, sharing);
    for (const port of ports) if (port.nodePort !== 0) put(byNodePort, nodePortKey(port), entry, competing);
    if (ports.length > 1 && hasPortTwice(ports)) competing.add(entry);
  }
  const byFrontend = new Map<string, Entry>();
  for (const entry of sharing) {
    for (const { protocol, port } of entry.service.ports) {
      for (const address of entry.addresses) put(byFrontend, `${protocol} ${address} ${port}`, entry, competing);
    }
  }
  return competing;
}

function hasPortTwice(ports: readonly Port[]): boolean {
  return new Set(ports.map(({ protocol, port }) => `${protocol} ${port}`)).size < ports.length;
}

/** Whether a Service declares an address or a node port of one of these: one of them owns it. */
function neighboursOf(chosen: ReadonlySet<Entry>): (entry: Entry) => boolean {
  const addresses = new Set<string>();
  const nodePorts = new Set<string>();
  for (const entry of chosen) {
    for (const address of entry.addresses) addresses.add(address);
    for (const port of entry.service.ports) if (port.nodePort !== 0) nodePorts.add(nodePortKey(port));
  }
  return (entry) =>
    entry.addresses.some((address) => addresses.has(address)) ||
    entry.service.ports.some((port) => port.nodePort !== 0 && nodePorts.has(nodePortKey(port)));
}
