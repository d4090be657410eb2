/**
 * What the kernel decides without rules. It runs nat chains only for the first packet of a connection, until the destination or the
 * source is decided (net/netfilter/nf_nat_core.c, nf_nat_inet_fn).
 */
import type { NodeFacts } from "../facts.ts";
import { type Packet, withDestination, withSource } from "../packet.ts";
import type { Hook, Stage } from "./program.ts";
import type { Fate } from "./tree.ts";

export const firstHook = ({ inInterface }: Packet): Hook => (inInterface === "" ? "output" : "prerouting");

/** Why the kernel does not run nat chains for the packet at this hook; undefined if it does. */
export function whyNotAsked(packet: Packet, stage: Stage): string | undefined {
  if (packet.state === "untracked") return "the packet is not tracked";
  if (packet.state !== "new" && packet.state !== "related")
    return "only the first packet of a connection passes nat chains";
  const isDestination = stage === "prerouting" || stage === "output";
  const isDecided = isDestination ? packet.isDestinationDecided : packet.isSourceDecided;
  return isDecided ? `the connection's ${isDestination ? "destination" : "source"} is decided` : undefined;
}

/** If no rule translates, that is decided too; later packets get the connection's translation. */
export function withTranslationDecided(packet: Packet, stage: Stage): Packet {
  if (stage === "socket" || stage === "forward" || packet.state === "untracked") return packet;
  const isDestination = stage === "prerouting" || stage === "output";
  const { translation } = packet;
  if (translation === undefined)
    return { ...packet, [isDestination ? "isDestinationDecided" : "isSourceDecided"]: true };
  if (isDestination) return withDestination(packet, translation.destination, translation.destinationPort);
  return translation.source === packet.source ? packet : withSource(packet, translation.source);
}

/** Chains of the hook behind nat see the translation that an earlier packet of the connection has got. */
export function withTranslation(packet: Packet, stage: Stage): Packet {
  return packet.translation === undefined ? packet : withTranslationDecided(packet, stage);
}

/** The fate of a packet that leaves the node. @param asked the packet as it was sent. */
export function fateOfLeaving(packet: Packet, asked: Packet, facts: NodeFacts): Fate {
  const { destination, source, origin } = packet;
  if (destination === asked.destination && packet.destinationPort === asked.destinationPort) {
    const service = facts.serviceAt(destination);
    if (service === undefined) return { kind: "sent" };
    // Nat rules do not see it, and the translation of its connection is not known.
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
      ? `a Service takes only TCP, UDP and SCTP to its ports, not ${protocol.toUpperCase()}`
      : `nothing takes ${protocol.toUpperCase()} to its port ${destinationPort}`;
  return `${destination} is an address of ${service}, and ${what}: it leaves by the node's routes`;
}
