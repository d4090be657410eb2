/**
 * Which flows of the connection tracking table lead where no rule would lead now: reference sync.md §13.2, steps 2 and 3. Dumping and
 * deleting is done elsewhere.
 */
import { type Flow, isTranslated } from "../net/flow.ts";
import { type IpAddress, joinHostPort } from "../net/ip.ts";
import type { Protocol } from "../net/protocol.ts";
import { type Endpoint, keepsFlows } from "./endpoint.ts";
import { frontendKey } from "./frontend.ts";

/** Protocols whose flows are ended with every service: those of TCP are connections, which their ends notice by themselves. */
export const ENDED_PROTOCOLS = ["UDP", "SCTP"] as const satisfies readonly Protocol[];

/** Part of `ProxyState`: what the rules that are in the kernel now were made of. */
export interface Served {
  /** The service port that a frontend belongs to. @param frontend as `frontendKey` writes it. */
  ownerOf(frontend: string): string | undefined;
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]>;
}

/**
 * Makes the judgement of flows: whether one goes to a frontend and is answered by none of the endpoints that keep flows
 * ({@link keepsFlows}); where an endpoint is, and what a policy says, does not matter. An association of SCTP stays with any endpoint that slices have, as a connection
 * would. At an address without endpoints every flow is stale. A node port is known by its number alone, which flows to other hosts may
 * have as well: where the addresses of the node are known, only those count; without endpoints, or without an owner now, it
 * ends only what was translated at one of them. Pure; looks only at service ports that flows go to.
 *
 * @param gone what service ports owned before, as {@link frontendKey} writes it; what has an owner again is judged by it.
 * @param own addresses of the node; empty: not known.
 */
export function staleFlowTest(
  served: Served,
  gone: ReadonlySet<string>,
  own: ReadonlySet<IpAddress>,
): (flow: Flow) => boolean {
  const known = new Map<string, ReadonlySet<string>>();
  return (flow) => {
    const { protocol, destinationIP, destinationPort: port, replySourceIP, replySourcePort } = flow;
    const servingOf = (key: string): ReadonlySet<string> => {
      const serving = known.get(key) ?? answeringIn(served.endpoints.get(key), protocol);
      known.set(key, serving);
      return serving;
    };
    const isAnswered = (owner: string) => servingOf(owner).has(joinHostPort(replySourceIP, replySourcePort));
    const atAddress = frontendKey(protocol, { address: destinationIP, port });
    const owner = served.ownerOf(atAddress);
    // Where the node's addresses are unknown, a node port of that number is asked, too, as upstream does.
    if (owner !== undefined && (own.size > 0 || !isAnswered(owner))) return !isAnswered(owner);
    const atNode = frontendKey(protocol, { address: undefined, port });
    const nodePort = own.size > 0 && !own.has(destinationIP) ? undefined : served.ownerOf(atNode);
    const hasNodePort = nodePort !== undefined && servingOf(nodePort).size > 0;
    if (hasNodePort && !isAnswered(nodePort)) return true;
    if (owner !== undefined) return false;
    if (gone.has(atAddress)) return true;
    if (hasNodePort || !isTranslated(flow) || !own.has(destinationIP)) return false;
    return nodePort !== undefined || gone.has(atNode);
  };
}

/** `ip:port` of the endpoints that may answer. */
function answeringIn(endpoints: readonly Endpoint[] | undefined, protocol: Protocol): ReadonlySet<string> {
  const answering = new Set<string>();
  for (const endpoint of endpoints ?? []) {
    if (protocol === "SCTP" || keepsFlows(endpoint)) answering.add(endpoint.text);
  }
  return answering;
}
