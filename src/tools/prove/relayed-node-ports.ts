/**
 * Node ports on loopback addresses, which cannot be translated, so the proxy itself relays the bytes: KEP-6032
 * (https://github.com/kubernetes/enhancements/issues/6032), with what is documented for v1.37 (reference releases.md §1.6).
 */
import type { Deviation } from "../../contract/deviations.ts";
import type { Packet } from "../../trace/packet.ts";
import { within } from "../../trace/question.ts";
import { type Ask, exactly, holds, only } from "./asking.ts";
import { type Fate, REFUSED, UNTOUCHED, wayTo } from "./fate.ts";
import { externalPolicyOf, type Frontend, localOf, type SpecifiedNode, usable } from "./stated-services.ts";

/** @returns the fate of a packet to a node port at a loopback address; undefined if the mode does not relay such ports. */
export function relayedNodePorts(
  node: SpecifiedNode,
  deviations: ReadonlySet<Deviation>,
): ((nodePort: Frontend, packet: Packet, ask: Ask) => Fate) | undefined {
  if (!deviations.has("loopback-relayed")) return undefined;
  const isListening = within("destination", exactly([node.family === "IPv4" ? "127.0.0.1" : "::1"]));
  const fromNode = within("inInterface", exactly([""]));
  return ({ served: { service, endpoints } }, packet, ask) => {
    if (!node.namesLoopback || packet.protocol !== "tcp") return only(REFUSED);
    const isNarrowed = externalPolicyOf(service) === "Local";
    const pool = isNarrowed ? localOf(endpoints) : usable(endpoints, node);
    // A dump has only rules, and these leave the packet to the proxy's socket.
    if (pool.length === 0 || node.ownSockets === undefined || !holds(isListening, packet, ask)) return only(UNTOUCHED);
    // The relay carries Services that ask for a hash, and chooses at random.
    const mayBeAtSocket = deviations.has("decided-at-socket") && service.balancing === undefined && !isNarrowed;
    const isAtSocket = mayBeAtSocket && packet.origin === "socket" && holds(fromNode, packet, ask);
    const suffix = service.sessionAffinity === "ClientIP" && pool.length > 1 ? ", always" : "";
    return new Map(pool.map(({ end }) => [`${wayTo(end, !isAtSocket)}${suffix}`, 1 / pool.length]));
  };
}
