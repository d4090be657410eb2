/** A packet on its way through a node, with what rules look at. Packets are immutable: each step makes a new one. */
import { type IpAddress, type IpFamily, joinHostPort, parseIpAddress } from "../net/ip.ts";

/** Connection-tracking states of a packet. */
export const CONNECTION_STATES = ["new", "established", "related", "invalid", "untracked"] as const;
export type ConnectionState = (typeof CONNECTION_STATES)[number];

/** The sender: a socket of this node or its pods, something on this node without a socket (a tunnel, a virtual machine), or another host. */
export type Origin = "socket" | "this-node" | "elsewhere";

/** A packet's two ends. Ports are undefined if they are not known or the protocol has none. */
export interface Flow {
  readonly source: IpAddress;
  readonly sourcePort: number | undefined;
  readonly destination: IpAddress;
  readonly destinationPort: number | undefined;
}

/** What identifies an IPVS virtual server; `protocol` in lower case. */
export interface VirtualServerName {
  readonly protocol: string;
  readonly address: IpAddress;
  readonly port: number;
}

/** The bits of a connection's mark that are known, with 0 for others, which earlier packets may have set. */
export interface ConnectionMark {
  readonly value: number;
  readonly known: number;
}

export const ALL_BITS = 0xffff_ffff;
export const UNKNOWN_MARK: ConnectionMark = { value: 0, known: 0 };

/** Protocols with ports. Connections of others have something else in their place (nf_conntrack_tuple). */
export const WITH_PORTS: readonly string[] = ["tcp", "udp", "sctp", "33", "136"];

export interface Packet extends Flow {
  readonly family: IpFamily;
  /** In lower case: `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`; others are numbers. */
  readonly protocol: string;
  /** Empty for packets that the node itself sends; undefined if not known. */
  readonly inInterface: string | undefined;
  /** The bridge port by which it comes in; empty if there is none, undefined if not known. */
  readonly bridgePort: string | undefined;
  /** Of the header and what follows it; undefined if not known. */
  readonly udpLength: number | undefined;
  readonly origin: Origin;
  /** Empty before routing; undefined if not known. */
  readonly outInterface: string | undefined;
  readonly mark: number;
  /** When its last route was looked for. */
  readonly routedMark: number;
  readonly connectionMark: ConnectionMark;
  readonly state: ConnectionState;
  /** Whether the connection begins with it, even if rules keep it from being tracked. */
  readonly isFirst: boolean;
  /** False in chains before connection tracking (raw), where packets have no connection yet. */
  readonly isTracked: boolean;
  /** The two ends of the connection before any translation. */
  readonly original: Flow;
  /** Whether NAT has changed the connection's destination or source. */
  readonly isDestinationTranslated: boolean;
  readonly isSourceTranslated: boolean;
  /** Whether the source has been masqueraded. */
  readonly isMasqueraded: boolean;
  /** False after masquerading if the node's address towards the destination is not known: `source` is then still the old one. */
  readonly isSourceKnown: boolean;
  /** The IPVS virtual server that forwarded it. */
  readonly virtualServer: VirtualServerName | undefined;
  /** Whether netfilter has decided on a translation, even if it is none: it does not run nat chains again. */
  readonly isDestinationDecided: boolean;
  readonly isSourceDecided: boolean;
  /** What the rule named that decided the destination; the rest is as it was. */
  readonly decided: readonly ("destination" | "destinationPort")[];
  /** The node's answer to a packet that a rule refused: its connection is that packet's. */
  readonly isRefusal: boolean;
  /** How the connection's earlier packets were translated. Undefined: not known, or there are none. */
  readonly translation?: Translation;
}

/** What connection tracking does to each packet of a connection. */
type Translation = Pick<Flow, "source" | "destination" | "destinationPort">;

/** What describes a packet before the first hook. */
export interface PacketQuestion extends Flow {
  readonly family: IpFamily;
  readonly protocol: string;
  /** Empty if the node itself sends it; undefined if not known. */
  readonly inInterface: string | undefined;
  /** @default none for packets that the node itself sends, not known for others */
  readonly bridgePort?: string;
  /** @default not known */
  readonly udpLength?: number | undefined;
  /** @default `socket` for packets that the node itself sends, `elsewhere` for others */
  readonly origin?: Origin;
  /** @default 0 */
  readonly mark?: number;
  /** @default "new" */
  readonly state?: ConnectionState;
}

/** The packet before the first hook. */
export function newPacket(question: PacketQuestion): Packet {
  const { source, sourcePort, destination, destinationPort, family, protocol, inInterface } = question;
  const flow: Flow = { source, sourcePort, destination, destinationPort };
  return {
    ...flow,
    family,
    protocol,
    inInterface,
    bridgePort: question.bridgePort ?? (inInterface === "" ? "" : undefined),
    udpLength: question.udpLength,
    origin: question.origin ?? (inInterface === "" ? "socket" : "elsewhere"),
    outInterface: "",
    mark: question.mark ?? 0,
    routedMark: question.mark ?? 0,
    connectionMark: (question.state ?? "new") === "new" ? { value: 0, known: ALL_BITS } : UNKNOWN_MARK,
    state: question.state ?? "new",
    isFirst: (question.state ?? "new") === "new",
    isTracked: true,
    original: flow,
    isDestinationTranslated: false,
    isSourceTranslated: false,
    isMasqueraded: false,
    isSourceKnown: true,
    virtualServer: undefined,
    isDestinationDecided: false,
    isSourceDecided: false,
    decided: [],
    isRefusal: false,
  };
}

/** The state that rules see. */
export function seenState({ state, isTracked }: Pick<Packet, "state" | "isTracked">): ConnectionState {
  return isTracked || state === "untracked" ? state : "invalid";
}

export function hasConnection(packet: Packet): boolean {
  return !["untracked", "invalid"].includes(seenState(packet));
}

/** Whether it is known what NAT did to the connection: of later packets' connections the first packet decided it. */
export function knowsTranslation(packet: Packet): boolean {
  const state = seenState(packet);
  return packet.isRefusal || (state !== "established" && state !== "related");
}

const TCP_FLAGS: Readonly<Record<string, number>> = {
  fin: 1,
  syn: 2,
  rst: 4,
  psh: 8,
  ack: 16,
  urg: 32,
  ecn: 64,
  cwr: 128,
};

/** The bit of a flag of TCP; undefined if there is none of this name. */
export function tcpFlag(name: string): number | undefined {
  return TCP_FLAGS[name.toLowerCase()];
}

/**
 * Whether of these flags of TCP exactly the wanted ones are set; undefined if not known. A connection begins with SYN alone, but for
 * the two flags of congestion; a refusal has RST, and ACK perhaps.
 */
export function hasFlags({ isFirst, isRefusal }: Packet, mask: number, wanted: number): boolean | undefined {
  const [set, open] = isRefusal ? [4, 64 | 128 | 16] : isFirst ? [2, 64 | 128] : [0, 255];
  if ((((set & mask) ^ wanted) & ~(open & mask)) !== 0) return false;
  return (mask & open) === 0 ? true : undefined;
}

/** An address, with the port if there is one. */
export function endText(address: IpAddress, port: number | undefined): string {
  return port === undefined ? address : joinHostPort(address, port);
}

/** The packet after destination NAT, to what is named; the connection counts as translated only if the destination changes. */
export function withDestination(packet: Packet, address: IpAddress | undefined, port: number | undefined): Packet {
  const [destination, destinationPort] = [address ?? packet.destination, port ?? packet.destinationPort];
  const isSame = destination === packet.destination && destinationPort === packet.destinationPort;
  return {
    ...packet,
    destination,
    destinationPort,
    isDestinationTranslated: packet.isDestinationTranslated || !isSame,
    isDestinationDecided: true,
    decided: [
      ...(address === undefined ? [] : (["destination"] as const)),
      ...(port === undefined ? [] : (["destinationPort"] as const)),
    ],
  };
}

/** The packet of a socket that was redirected before it connected: nothing is translated. */
export function askingFor(packet: Packet, destination: IpAddress, destinationPort: number): Packet {
  const { source, sourcePort } = packet;
  const original: Flow = { source, sourcePort, destination, destinationPort };
  return { ...packet, destination, destinationPort, original };
}

/** The packet after source NAT to this address, with some free port. */
export function withSource(packet: Packet, source: IpAddress): Packet {
  return { ...packet, source, sourcePort: undefined, isSourceTranslated: true, isSourceDecided: true };
}

/** The packet after masquerading. @param address the node's address towards its destination, if known. */
export function masqueraded(packet: Packet, address: IpAddress | undefined): Packet {
  return { ...withSource(packet, address ?? packet.source), isMasqueraded: true, isSourceKnown: address !== undefined };
}

/** A later packet of a connection whose translation is known: no nat rule sees it. */
export function ofKnownConnection(packet: Packet, translation: Translation): Packet {
  const connectionMark = UNKNOWN_MARK;
  return { ...packet, translation, connectionMark, isDestinationDecided: true, isSourceDecided: true };
}

/** The address that `redirect` sets: loopback for the node's own packets, otherwise the address of the incoming interface. */
export function redirectAddress(packet: Packet, own: IpAddress | undefined): IpAddress {
  const loopback = parseIpAddress(packet.family === "IPv4" ? "127.0.0.1" : "::1");
  return (packet.inInterface === "" ? loopback : (own ?? loopback)) ?? packet.destination;
}
