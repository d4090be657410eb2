/** Reads a value from a packet, its connection or routing. Names are libnftables' (libnftables-json(5)). */
import type { IpAddress } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import { ALL_BITS, type Flow, hasConnection, knowsTranslation, type Packet, seenState, WITH_PORTS } from "../packet.ts";
import type { PacketField } from "../question.ts";
import type { Parts, SomeParts } from "../value.ts";

export type Reading =
  | { readonly kind: "value"; readonly parts: Parts }
  /** The packet has no such field, or the map no such key: the rule ends. */
  | { readonly kind: "none" }
  /** It has a value, which is not known. */
  | {
      readonly kind: "unknown";
      readonly what: string;
      readonly typeOf?: IpAddress;
      readonly parts?: SomeParts;
      /** One of 65,536: taken for none that a rule names. */
      readonly isChecksum?: true;
    }
  /** A map that packets fill may have the key. */
  | { readonly kind: "maybe"; readonly what: string; readonly parts?: SomeParts };

export const NONE: Reading = { kind: "none" };

export function value(scalar: string | number): Reading {
  return { kind: "value", parts: [scalar] };
}

const WORDS: Readonly<Record<string, string>> = {
  sourcePort: "the source port",
  destinationPort: "the destination port",
  inInterface: "the interface that it comes in by",
  outInterface: "the interface that it leaves by",
};

function fieldOf<F extends string>(
  from: Readonly<Record<F, string | number | undefined>>,
  field: F,
  asked: string = field,
): Reading {
  const found = from[field];
  return found === undefined ? { kind: "unknown", what: WORDS[asked] ?? asked } : value(found);
}

type Named<F extends string> = Readonly<Record<string, F>>;

/** Fields in packet headers. */
const PAYLOAD_FIELDS: Named<PacketField> = {
  saddr: "source",
  daddr: "destination",
  protocol: "protocol",
  nexthdr: "protocol",
  sport: "sourcePort",
  dport: "destinationPort",
  "udp length": "udpLength",
};

export function payloadField(protocol: string, name: string): PacketField | undefined {
  return PAYLOAD_FIELDS[name] ?? PAYLOAD_FIELDS[`${protocol} ${name}`];
}

/** Headers that only packets of one protocol have, with its name in {@link Packet}. */
export const TRANSPORTS: Readonly<Record<string, string>> = {
  ...{ tcp: "tcp", udp: "udp", sctp: "sctp", icmp: "icmp", icmpv6: "icmpv6" },
  ...{ igmp: "2", dccp: "33", gre: "47", esp: "50", ah: "51", comp: "108", udplite: "136" },
};

/** @param isOfConnection whether the rule has compared `ct protocol`, so that it asks for no protocol of the packet's own. */
export function payload(packet: Packet, protocol: string, name: string, text: string, isOfConnection = false): Reading {
  const field = payloadField(protocol, name);
  const unclear: Reading = { kind: "unknown", what: text };
  const isError = packet.isRefusal || seenState(packet) === "related";
  if (protocol === "ip" || protocol === "ip6") {
    if ((protocol === "ip") !== (packet.family === "IPv4")) return NONE;
  } else if (protocol !== "th" && TRANSPORTS[protocol] !== packet.protocol) {
    return isOfConnection && isError ? unclear : NONE;
  } else if (packet.protocol.startsWith("icmp") && field !== undefined) {
    // In the place of ports, ICMP has its type, code and checksum.
    if (packet.isRefusal && name === "dport") return { ...unclear, parts: [undefined], isChecksum: true };
    return isError || packet[field] === undefined ? unclear : fieldOf(packet, field);
  }
  return field === undefined ? { kind: "unknown", what: text } : fieldOf(packet, field);
}

export const META_FIELDS: Named<PacketField | "outInterface"> = {
  l4proto: "protocol",
  iifname: "inInterface",
  iif: "inInterface",
  oifname: "outInterface",
  oif: "outInterface",
};

export function meta(packet: Packet, key: string): Reading {
  const field = META_FIELDS[key];
  if (field !== undefined) return fieldOf(packet, field);
  switch (key) {
    case "mark":
      return value(packet.mark);
    case "nfproto":
      return value(packet.family === "IPv4" ? "ipv4" : "ipv6");
    case "protocol":
      return value(packet.family === "IPv4" ? "ip" : "ip6");
    default:
      return { kind: "unknown", what: `meta ${key}` };
  }
}

export const CONNECTION_FIELDS: Named<keyof Flow> = {
  "ip saddr": "source",
  "ip6 saddr": "source",
  saddr: "source",
  "ip daddr": "destination",
  "ip6 daddr": "destination",
  daddr: "destination",
  "proto-src": "sourcePort",
  "proto-dst": "destinationPort",
};

/** For the reply direction: source and destination swapped, as translated so far. */
export const OTHER_END = {
  source: "destination",
  destination: "source",
  sourcePort: "destinationPort",
  destinationPort: "sourcePort",
} as const;

export function connection(packet: Packet, key: string, text: string, isReply: boolean): Reading {
  const state = seenState(packet);
  if (key !== "state" && !hasConnection(packet)) return NONE;
  const field = CONNECTION_FIELDS[key];
  // It may be another's connection. Of a refusal, it is the refused packet's.
  const isKnown = packet.isRefusal ? !isReply : state !== "related";
  if (!isKnown && (field !== undefined || key === "direction")) return { kind: "unknown", what: text };
  // Others have something else there: ICMP its identifier and its type.
  if (!packet.isRefusal && field?.endsWith("Port") && !WITH_PORTS.includes(packet.protocol))
    return { kind: "unknown", what: text };
  if (field !== undefined) return isReply ? fieldOf(packet, OTHER_END[field], field) : fieldOf(packet.original, field);
  switch (key) {
    case "state":
      return value(state);
    case "status": {
      if (!knowsTranslation(packet)) return { kind: "unknown", what: text };
      const bits = [packet.isDestinationTranslated ? "dnat" : "", packet.isSourceTranslated ? "snat" : ""];
      return { kind: "value", parts: bits.filter((bit) => bit !== "") };
    }
    case "direction":
      return value(packet.isRefusal ? "reply" : "original");
    case "protocol":
      // Of a refusal, or of another's error, it is that of the packet it tells of.
      return packet.isRefusal || state === "related" ? { kind: "unknown", what: text } : value(packet.protocol);
    case "mark": {
      const { value: mark, known } = packet.connectionMark;
      return known === ALL_BITS ? value(mark) : { kind: "unknown", what: text };
    }
    default:
      return { kind: "unknown", what: text };
  }
}

export function fib(
  packet: Packet,
  result: string,
  flags: readonly unknown[],
  facts: NodeFacts,
  text: string,
): Reading {
  const [side, ...others] = flags;
  if (result !== "type" || (side !== "saddr" && side !== "daddr")) return { kind: "unknown", what: text };
  const address = side === "saddr" ? packet.source : packet.destination;
  const type = facts.addressType(address);
  // With an interface in the flags, only addresses of that interface are local.
  const what = `${text} of ${address}`;
  if (type === undefined)
    return others.length === 0 ? { kind: "unknown", what, typeOf: address } : { kind: "unknown", what };
  if (others.length > 0 && type === "local") return { kind: "unknown", what };
  return value(type);
}
