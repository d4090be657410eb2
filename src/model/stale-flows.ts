/**
 * Finds stale conntrack entries, whose flows go where no rule would send them now (reference sync.md §13.2, steps 2 and
 * 3). Other modules dump and delete the entries.
 */
import { type Flow, isTranslated } from "../net/flow.ts";
import { type IpAddress, joinHostPort } from "../net/ip.ts";
import type { Protocol } from "../net/protocol.ts";
import { type Endpoint, keepsFlows } from "./endpoint.ts";
import { frontendKey } from "./frontend.ts";

/** Protocols whose flows end with their service; the peers of a TCP connection notice by themselves. */
export const ENDED_PROTOCOLS = ["UDP", "SCTP"] as const satisfies readonly Protocol[];

/** The part of `ProxyState` that the kernel's current rules were made from. */
export interface Served {
  /** The owner of a frontend. @param frontend a `frontendKey`. */
  ownerOf(frontend: string): string | undefined;
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]>;
}

/**
 * Creates the test for stale flows: a flow is stale if it goes to a frontend and none of the endpoints that keep flows
 * ({@link keepsFlows}) answers it; their nodes and policies do not matter. An SCTP association stays with any endpoint
 * in the slices, as a connection would. At an address without endpoints every flow is stale. A node port is only a
 * number, which flows to other hosts may use too: if the node's addresses are known, only flows to them count, and a
 * node port without endpoints or owner ends only flows translated at one of them. Visits only ports that flows go to.
 *
 * @param gone {@link frontendKey}s that were owned before; if one has an owner again, that owner decides.
 * @param own addresses of the node; empty if unknown.
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
    // If the node's addresses are unknown, also checks a node port with that number, as upstream does.
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

/** `ip:port` of the endpoints that may keep flows. */
function answeringIn(endpoints: readonly Endpoint[] | undefined, protocol: Protocol): ReadonlySet<string> {
  const answering = new Set<string>();
  for (const endpoint of endpoints ?? []) {
    if (protocol === "SCTP" || keepsFlows(endpoint)) answering.add(endpoint.text);
  }
  return answering;
}
