/** A packet on its way through a node, as far as rules look at it. Values are never changed: each step makes a new one. */
import { type IpAddress, type IpFamily, joinHostPort, parseIpAddress } from "../net/ip.ts";

/** What connection tracking says of the packet. */
export const CONNECTION_STATES = ["new", "established", "related", "invalid", "untracked"] as const;
export type ConnectionState = (typeof CONNECTION_STATES)[number];

/** Who sends it: a socket of this node or of its pods, something of this node that has none (a tunnel, a machine), or another host. */
export type Origin = "socket" | "this-node" | "elsewhere";

/** Where a packet comes from and where it goes to. Ports are undefined where they are not known or the protocol has none. */
export interface Flow {
  readonly source: IpAddress;
  readonly sourcePort: number | undefined;
  readonly destination: IpAddress;
  readonly destinationPort: number | undefined;
}

/** What a virtual server of IPVS is known by; `protocol` in lower case. */
export interface VirtualServerName {
  readonly protocol: string;
  readonly address: IpAddress;
  readonly port: number;
}

export interface Packet extends Flow {
  readonly family: IpFamily;
  /** In lower case: `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`; others by number. */
  readonly protocol: string;
  /** Empty for packets of the node itself; undefined when it is not known. */
  readonly inInterface: string | undefined;
  /** Of the bridge that it comes in by; empty where it comes by none, undefined when that is not known. */
  readonly bridgePort: string | undefined;
  readonly origin: Origin;
  /** Empty before routing; undefined when it is not known. */
  readonly outInterface: string | undefined;
  readonly mark: number;
  /** The connection's mark; undefined if it is not known: earlier packets may have set it. */
  readonly connectionMark: number | undefined;
  readonly state: ConnectionState;
  /** Of the connection, as it was asked for. */
  readonly original: Flow;
  /** Whether the connection's destination or source has been translated to another one. */
  readonly isDestinationTranslated: boolean;
  readonly isSourceTranslated: boolean;
  /** Whether the source is an address of the node by now. */
  readonly isMasqueraded: boolean;
  /** False after masquerading where the node's address towards the destination is not known: the source is still the one before. */
  readonly isSourceKnown: boolean;
  /** The virtual server of IPVS that has sent it on. */
  readonly virtualServer: VirtualServerName | undefined;
  /** Whether netfilter has decided on a translation, be it none: nat chains are not asked again. */
  readonly isDestinationDecided: boolean;
  readonly isSourceDecided: boolean;
  /** Of a connection that has packets already: where they are led, and with which source. Undefined: not known, or none. */
  readonly translation?: Translation;
}

/** What connection tracking does to each packet of a connection. */
type Translation = Pick<Flow, "source" | "destination" | "destinationPort">;

/** What must be said of a packet; the rest follows. */
export interface PacketQuestion extends Flow {
  readonly family: IpFamily;
  readonly protocol: string;
  /** Empty: the node itself sends it. Undefined: not known. */
  readonly inInterface: string | undefined;
  /** @default none for packets of the node itself, not known for others */
  readonly bridgePort?: string;
  /** @default a socket for packets of the node itself, elsewhere for others */
  readonly origin?: Origin;
  /** @default 0 */
  readonly mark?: number;
  /** @default "new" */
  readonly state?: ConnectionState;
}

/** The packet before the first hook. Pure. */
export function newPacket(question: PacketQuestion): Packet {
  const { source, sourcePort, destination, destinationPort, family, protocol, inInterface } = question;
  const flow: Flow = { source, sourcePort, destination, destinationPort };
  return {
    ...flow,
    family,
    protocol,
    inInterface,
    bridgePort: question.bridgePort ?? (inInterface === "" ? "" : undefined),
    origin: question.origin ?? (inInterface === "" ? "socket" : "elsewhere"),
    outInterface: "",
    mark: question.mark ?? 0,
    connectionMark: (question.state ?? "new") === "new" ? 0 : undefined,
    state: question.state ?? "new",
    original: flow,
    isDestinationTranslated: false,
    isSourceTranslated: false,
    isMasqueraded: false,
    isSourceKnown: true,
    virtualServer: undefined,
    isDestinationDecided: false,
    isSourceDecided: false,
  };
}

/** An address with its port, where there is one. Pure. */
export function endText(address: IpAddress, port: number | undefined): string {
  return port === undefined ? address : joinHostPort(address, port);
}

/** The packet after destination NAT; the connection counts as translated only where that changes something. Pure. */
export function withDestination(packet: Packet, destination: IpAddress, port: number | undefined): Packet {
  const destinationPort = port ?? packet.destinationPort;
  const isSame = destination === packet.destination && destinationPort === packet.destinationPort;
  return {
    ...packet,
    destination,
    destinationPort,
    isDestinationTranslated: packet.isDestinationTranslated || !isSame,
    isDestinationDecided: true,
  };
}

/** The connection asks for another place from the beginning: nothing is translated. Pure. */
export function askingFor(packet: Packet, destination: IpAddress, destinationPort: number): Packet {
  const { source, sourcePort } = packet;
  const original: Flow = { source, sourcePort, destination, destinationPort };
  return { ...packet, destination, destinationPort, original };
}

/** The packet after source NAT to this address; its port is whichever is free. Pure. */
export function withSource(packet: Packet, source: IpAddress): Packet {
  return { ...packet, source, sourcePort: undefined, isSourceTranslated: true, isSourceDecided: true };
}

/** The packet after masquerading. @param address the node's address towards its destination, where it is known. Pure. */
export function masqueraded(packet: Packet, address: IpAddress | undefined): Packet {
  return { ...withSource(packet, address ?? packet.source), isMasqueraded: true, isSourceKnown: address !== undefined };
}

/** A later packet of a connection whose translation is known: rules are not asked about it. Pure. */
export function ofKnownConnection(packet: Packet, translation: Translation): Packet {
  return { ...packet, translation, isDestinationDecided: true, isSourceDecided: true };
}

/** Where `redirect` leads: packets of the node itself to loopback, others to the address of the interface that they came in by. */
export function redirectAddress(packet: Packet, own: IpAddress | undefined): IpAddress {
  const loopback = parseIpAddress(packet.family === "IPv4" ? "127.0.0.1" : "::1");
  return (packet.inInterface === "" ? loopback : (own ?? loopback)) ?? packet.destination;
}
