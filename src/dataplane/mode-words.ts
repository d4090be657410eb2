/** The sentences of `explain` that differ from mode to mode. Pure. */
import type { KubeProxyConfig } from "../config/config.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import type { ServicePort } from "../model/service-port.ts";

/** Why a packet for a frontend is not led, where nothing refuses or drops it. */
export type NotTaken =
  | "own-packets-not-looked-at"
  | "only-from-elsewhere"
  | "source-ranges"
  | "no-load-balancer"
  | "host-not-led";

/** What sentences about the source of connections depend on. */
export interface SourceFacts {
  readonly node: OfflineNode;
  readonly config: KubeProxyConfig;
  readonly port: ServicePort;
  /** Some endpoint that is used is on this node. */
  readonly hasLocal: boolean;
}

export interface ModeWords {
  /** What clients of a service port without usable endpoints meet. */
  readonly unserved: string;
  /** Whom a Local policy of the outside binds, at the head of a sentence: `from outside, `. */
  readonly localPolicy: string;
  /** What `loadBalancerSourceRanges` do. */
  sourceRanges(ranges: readonly string[]): string;
  /** How long a client keeps its endpoint. */
  affinity(seconds: number): string;
  /** Whom endpoints see, in sentences. */
  sources(facts: SourceFacts): readonly string[];
  /** Who leads node ports at loopback addresses, where something does; otherwise why nothing does, and what would. */
  loopback(facts: SourceFacts): { readonly led: string; readonly notLed: string };
  /** Whom an endpoint sees that does not see its client. */
  readonly otherSource: "masqueraded" | "host-or-source-vip";
  /** @param isBarred whether the client is not in `loadBalancerSourceRanges`. */
  notTaken(position: "pod" | "node" | "other-node" | "outside", isBarred: boolean): NotTaken;
}

/** For modes whose rules let the kernel translate addresses. */
export const TRANSLATING: ModeWords = {
  unserved: "its clients are refused",
  localPolicy: "from outside, ",
  sourceRanges: (ranges) => `Load-balancer addresses are for clients in ${ranges.join(", ")} only.`,
  affinity: (seconds) =>
    `A client keeps its endpoint until it has been silent for ${seconds} seconds (sessionAffinity ClientIP).`,
  sources: (facts) => [...masqueradingOf(facts), ...(facts.hasLocal ? [HAIRPIN] : [])],
  loopback: ({ node: { nodePortAddresses } }) => ({
    led: "rules lead there, and the endpoint sees this node's address",
    notLed:
      nodePortAddresses.namesLoopback || nodePortAddresses.matchesAll ? "the mode does not lead there" : NOT_NAMED,
  }),
  otherSource: "masqueraded",
  notTaken: () => "own-packets-not-looked-at",
};

const NOT_NAMED = "nodePortAddresses leaves loopback out";
const HAIRPIN = "An endpoint that asks its own Service and gets itself sees the node's address (hairpin).";

/** Who is masqueraded at cluster IPs, where it is not the default. */
export function masqueradingOf({ node: { detector }, config: { masqueradeAll } }: SourceFacts): string[] {
  if (masqueradeAll) return ["masqueradeAll is set: endpoints never see who asks at the cluster IP."];
  if (detector.kind !== "none") return [];
  return [
    "The configuration does not say how to tell the pods of this node from others (clusterCIDR, detectLocalMode): " +
      "cluster IPs are not masqueraded, and pods count as outside for the Local policy.",
  ];
}
