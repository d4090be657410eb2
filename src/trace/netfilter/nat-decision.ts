/**
 * When nat chains are asked: for the first packet of a connection, until its destination, or its source, is decided
 * (net/netfilter/nf_nat_core.c, nf_nat_inet_fn). Pure.
 */
import { type Packet, withDestination, withSource } from "../packet.ts";
import type { Stage } from "./program.ts";

/** Why a nat chain is not asked about the packet at this hook; undefined when it is. */
export function whyNotAsked(packet: Packet, stage: Stage): string | undefined {
  if (packet.state === "untracked") return "the packet is not tracked";
  if (packet.state !== "new" && packet.state !== "related") return "only the first packet of a connection is asked";
  const isDestination = stage === "prerouting" || stage === "output";
  const isDecided = isDestination ? packet.isDestinationDecided : packet.isSourceDecided;
  return isDecided ? `the connection's ${isDestination ? "destination" : "source"} is decided` : undefined;
}

/** Where no rule translates, that is a decision as well; what was decided for the connection is done to each of its packets. */
export function withTranslationDecided(packet: Packet, stage: Stage): Packet {
  if (stage === "socket" || stage === "forward" || packet.state === "untracked") return packet;
  const isDestination = stage === "prerouting" || stage === "output";
  const { translation } = packet;
  if (translation === undefined)
    return { ...packet, [isDestination ? "isDestinationDecided" : "isSourceDecided"]: true };
  if (isDestination) return withDestination(packet, translation.destination, translation.destinationPort);
  return translation.source === packet.source ? packet : withSource(packet, translation.source);
}
