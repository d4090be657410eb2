/**
 * What the kernel decides without rules. Nat chains are asked for the first packet of a connection, until its destination, or its
 * source, is decided (net/netfilter/nf_nat_core.c, nf_nat_inet_fn). Pure.
 */
import type { NodeFacts } from "../facts.ts";
import { type Packet, withDestination, withSource } from "../packet.ts";
import type { Stage } from "./program.ts";
import type { Fate } from "./tree.ts";

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

/** What becomes of a packet that leaves the node. @param asked the same packet as it came. Pure. */
export function fateOfLeaving(packet: Packet, asked: Packet, facts: NodeFacts): Fate {
  const { destination, source, origin } = packet;
  if (destination === asked.destination && packet.destinationPort === asked.destinationPort) {
    const service = facts.serviceAt(destination);
    if (service === undefined) return { kind: "sent" };
    // No rule is asked about it; where its connection was led is not told.
    const isLater = packet.state === "established" || packet.state === "related";
    return isLater && packet.translation === undefined && packet.destinationPort !== undefined
      ? { kind: "uncertain", because: "the endpoint of the connection's first packet" }
      : { kind: "not-led", because: whyNotLed(packet, service) };
  }
  const isTranslated = packet.isDestinationTranslated || packet.virtualServer !== undefined;
  const isFromElsewhere = origin === "elsewhere" || facts.serviceAt(source) !== undefined;
  const isLost = isTranslated && isFromElsewhere && !packet.isSourceTranslated && facts.isRemoteEndpoint(destination);
  return isLost ? { kind: "sent", isAnswerLost: true } : { kind: "sent" };
}

function whyNotLed({ protocol, destination, destinationPort }: Packet, service: string): string {
  const what =
    destinationPort === undefined
      ? `only TCP, UDP and SCTP to its ports are led, not ${protocol.toUpperCase()}`
      : `nothing takes ${protocol.toUpperCase()} to its port ${destinationPort}`;
  return `${destination} is an address of ${service}, and ${what}: it leaves by the node's routes`;
}
