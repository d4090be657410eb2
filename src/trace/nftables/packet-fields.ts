/** What a rule reads of a packet, of its connection and of routing. Names are libnftables' (libnftables-json(5)). Pure. */
import type { IpAddress } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import type { Flow, Packet } from "../packet.ts";
import { type Parts, protocolName } from "../value.ts";

/** What reading gives. */
export type Reading =
  | { readonly kind: "value"; readonly parts: Parts }
  /** The packet has no such field, or the map no such key: the rule ends. */
  | { readonly kind: "none" }
  /** It is there, and what it is, is not known. */
  | { readonly kind: "unknown"; readonly what: string; readonly typeOf?: IpAddress }
  /** A map that packets fill may have it. */
  | { readonly kind: "maybe"; readonly what: string };

export const NONE: Reading = { kind: "none" };

export function value(scalar: string | number): Reading {
  return { kind: "value", parts: [scalar] };
}

function valueOr(scalar: string | number | undefined, what: string): Reading {
  return scalar === undefined ? { kind: "unknown", what } : value(scalar);
}

export function payload(packet: Packet, protocol: string, field: string, text: string): Reading {
  if (protocol === "ip" || protocol === "ip6") {
    if ((protocol === "ip") !== (packet.family === "IPv4")) return NONE;
    if (field === "saddr") return value(packet.source);
    if (field === "daddr") return value(packet.destination);
    if (field === "protocol" || field === "nexthdr") return value(packet.protocol);
    return { kind: "unknown", what: text };
  }
  // `th` is any transport header.
  if (protocol !== "th" && protocol !== packet.protocol) return NONE;
  // What stands in their place in a header of ICMP is in no set of ports.
  if (packet.protocol.startsWith("icmp") && (field === "dport" || field === "sport")) return NONE;
  if (field === "dport") return valueOr(packet.destinationPort, "the destination port");
  if (field === "sport") return valueOr(packet.sourcePort, "the source port");
  return { kind: "unknown", what: text };
}

export function meta(packet: Packet, key: string): Reading {
  switch (key) {
    case "l4proto":
      return value(protocolName(packet.protocol));
    case "mark":
      return value(packet.mark);
    case "nfproto":
      return value(packet.family === "IPv4" ? "ipv4" : "ipv6");
    case "protocol":
      return value(packet.family === "IPv4" ? "ip" : "ip6");
    case "iifname":
    case "iif":
      return valueOr(packet.inInterface, "the interface that it comes in by");
    case "oifname":
    case "oif":
      return valueOr(packet.outInterface, "the interface that it leaves by");
    default:
      return { kind: "unknown", what: `meta ${key}` };
  }
}

export const originalFlow = ({ original }: Packet): Flow => original;

/** What answers come from and go to: the connection's ends as they are translated by now, the other way round. */
export function replyFlow({ source, sourcePort, destination, destinationPort }: Packet): Flow {
  return { source: destination, sourcePort: destinationPort, destination: source, destinationPort: sourcePort };
}

export function connection(packet: Packet, key: string, text: string, flowOf: (packet: Packet) => Flow): Reading {
  const { state } = packet;
  const flow = flowOf(packet);
  switch (key) {
    case "state":
      return value(state);
    case "status": {
      // Of an established connection, its first packet has decided; what, is not told.
      if (state === "established" || state === "related") return { kind: "unknown", what: text };
      const bits = [packet.isDestinationTranslated ? "dnat" : "", packet.isSourceTranslated ? "snat" : ""];
      return { kind: "value", parts: bits.filter((bit) => bit !== "") };
    }
    case "direction":
      return value("original");
    case "ip saddr":
    case "ip6 saddr":
    case "saddr":
      return value(flow.source);
    case "ip daddr":
    case "ip6 daddr":
    case "daddr":
      return value(flow.destination);
    case "proto-src":
      return valueOr(flow.sourcePort, "the source port");
    case "proto-dst":
      return valueOr(flow.destinationPort, "the destination port");
    case "protocol":
      return value(packet.protocol);
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
  // With an interface, only addresses of that one are local.
  const what = `${text} of ${address}`;
  if (type === undefined)
    return others.length === 0 ? { kind: "unknown", what, typeOf: address } : { kind: "unknown", what };
  if (others.length > 0 && type === "local") return { kind: "unknown", what };
  return value(type);
}
