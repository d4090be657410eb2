/** The sentences of `explain` that differ from mode to mode. */

import type { ServicePort } from "../model/service-port.ts";
import type { Protocol } from "../net/protocol.ts";
import type { KubeProxyConfig } from "./config/config.ts";
import type { OfflineNode } from "./inspect/offline-node.ts";

/** Why a packet to a frontend is not forwarded to an endpoint, although nothing rejects or drops it. */
export type NotTaken =
  | "own-packets-not-looked-at"
  | "only-from-elsewhere"
  | "source-ranges"
  | "protocol-not-served"
  | "no-load-balancer"
  | "host-not-led"
  | "another-nodes";

/** What the sentences about the source of connections depend on. */
export interface SourceFacts {
  readonly node: OfflineNode;
  readonly config: KubeProxyConfig;
  readonly port: ServicePort;
  /** Whether a used endpoint is on this node. */
  readonly hasLocal: boolean;
}

export interface ModeWords {
  /** What happens to clients of a service port without usable endpoints. */
  readonly unserved: string;
  /** Whose traffic externalTrafficPolicy Local applies to, as the start of a sentence: `from outside, `. */
  readonly localPolicy: string;
  /** The effect of `loadBalancerSourceRanges`. */
  sourceRanges(ranges: readonly string[]): string;
  /** How long a client keeps its endpoint. */
  affinity(seconds: number): string;
  /** Which source address endpoints see, in sentences. */
  sources(facts: SourceFacts): readonly string[];
  /** What serves node ports on loopback addresses, or why nothing does and what would. */
  loopback(facts: SourceFacts): { readonly led: string; readonly notLed: string };
  /** The source that an endpoint sees if it does not see its client. */
  readonly otherSource: "masqueraded" | "host-or-source-vip";
  /** @param isBarred whether the client is not in `loadBalancerSourceRanges`. */
  notTaken(position: "pod" | "node" | "other-node" | "outside", isBarred: boolean, protocol: Protocol): NotTaken;
}

/** The words of modes whose rules let the kernel translate addresses. */
export const TRANSLATING: ModeWords = {
  unserved: "its clients are refused",
  localPolicy: "from outside, ",
  sourceRanges: (ranges) => `Load-balancer addresses are for clients in ${ranges.join(", ")} only.`,
  affinity: (seconds) =>
    `A client keeps its endpoint until it has been silent for ${seconds} ${seconds === 1 ? "second" : "seconds"} (sessionAffinity ClientIP).`,
  sources: (facts) => [...masqueradingOf(facts), ...(facts.hasLocal ? [HAIRPIN] : [])],
  loopback: ({ node: { nodePortAddresses } }) => ({
    led: "rules send it to an endpoint, which sees this node's address",
    notLed: nodePortAddresses.namesLoopback || nodePortAddresses.matchesAll ? "this mode does not serve it" : NOT_NAMED,
  }),
  otherSource: "masqueraded",
  notTaken: () => "own-packets-not-looked-at",
};

const NOT_NAMED = "nodePortAddresses leaves loopback out";
const HAIRPIN = "An endpoint that reaches itself through its Service sees the node's address (hairpin).";

/** Which clients of cluster IPs are masqueraded, if that differs from the default. */
export function masqueradingOf({ node: { detector }, config: { masqueradeAll } }: SourceFacts): string[] {
  if (masqueradeAll) return ["masqueradeAll is set: endpoints never see the clients of the cluster IP."];
  if (detector.kind !== "none") return [];
  return [
    "The configuration does not tell this node's pods from others (clusterCIDR, detectLocalMode): " +
      "cluster IPs are not masqueraded, and pods count as outside for the Local policy.",
  ];
}
