/** What `kube-proxy explain` says of one service port on one node, as data: `-o json`. Names and shapes may still change. */
import type { KernelPart } from "../dataplane/inspection.ts";
import type { ModeWords, NotTaken } from "../dataplane/mode-words.ts";
import type { FrontendKind } from "../model/frontend.ts";
import type { IpFamily } from "../net/ip.ts";

/** Where a client is: a pod of this node, this node itself, another node, outside of the cluster. */
export const POSITIONS = ["pod", "node", "other-node", "outside"] as const;
export type Position = (typeof POSITIONS)[number];

/** Why a client meets something else than an answer, or not the answer that the policy promises. */
export type ReachReason =
  | "no-endpoint"
  | "no-local-endpoint"
  | "answers-lost"
  | "no-node-port-address"
  | "other-frontend"
  | "not-known"
  | "policy"
  | NotTaken;

export interface Encounter {
  readonly position: Position;
  readonly outcome: "answered" | "refused" | "dropped" | "passed-by";
  /** Which endpoints answer; undefined when none does. */
  readonly endpoints: "all" | "local" | undefined;
  /** What the endpoint sees as the client: its address, the service's own address, or another. Undefined when none answers. */
  readonly source: "kept" | "service-address" | ModeWords["otherSource"] | undefined;
  readonly reason: ReachReason;
  /** By whom it is answered, or why it is not. */
  readonly words: string;
  /** This holds for clients in `loadBalancerSourceRanges` only; others are dropped. */
  readonly onlyListedSources: boolean;
}

/** One service port, seen by one node and one family. */
export interface PortExplanation {
  readonly node: string;
  readonly zone: string | null;
  readonly mode: string;
  readonly family: IpFamily;
  /** `namespace/name:port` */
  readonly servicePort: string;
  readonly protocol: string;
  readonly type: string;
  readonly policies: Policies;
  readonly frontends: readonly ExplainedFrontend[];
  readonly endpoints: readonly ExplainedEndpoint[];
  /** Copies of endpoints that do not count, and what makes no endpoint. */
  readonly passedOver: readonly { readonly slice: string; readonly why: string }[];
  /** Why clients meet something else than any endpoint: policies, hints, what is missing. In sentences. */
  readonly causes: readonly string[];
  /** What else is to be known, in sentences. */
  readonly decisions: readonly string[];
  readonly kernel: readonly KernelPart[];
  /** What the numbers of {@link Traffic} mean, and what is not known; missing where the kernel was not asked. */
  readonly trafficNotes?: readonly string[];
}

/** What the kernel has counted; null is not known, missing was not asked. */
export interface Traffic {
  /** Connections that are tracked now. */
  readonly open?: number | null;
  /** Connections since the kernel began to count. */
  readonly counted?: number | null;
  /** Packets of new connections that rules have refused, and dropped, at a frontend. */
  readonly refused?: number;
  readonly dropped?: number;
}

export interface Policies {
  readonly internal: "Cluster" | "Local";
  readonly external: "Cluster" | "Local";
  readonly sessionAffinity: "None" | "ClientIP";
  /** Seconds; 0 without affinity. */
  readonly affinitySeconds: number;
  readonly sourceRanges: readonly string[];
  /** 0 when there is none. */
  readonly healthCheckNodePort: number;
  /** Endpoints here that are ready, which the health check counts. */
  readonly localReady: number;
}

export interface ExplainedFrontend extends Traffic {
  readonly kind: FrontendKind;
  /** Null for a node port. */
  readonly address: string | null;
  readonly port: number;
  readonly policy: "Cluster" | "Local";
  readonly fate: "serve" | "drop" | "refuse" | "lost";
  /** The service port that has this address instead; null when it is its own. */
  readonly owner: string | null;
  /** Where a node port answers: addresses, or "every address of the node". Null for others. */
  readonly answersAt: string | null;
  /** What this node meets at the port of its loopback address, in a sentence. Null for others than node ports, and without endpoints. */
  readonly atLoopback: string | null;
  /** What sockets of this node meet here by the kernel's maps, a line for each fact; missing where they were not read. */
  readonly sockets?: readonly string[];
  /** Empty when the frontend is another's. */
  readonly clients: readonly Encounter[];
}

export interface ExplainedEndpoint extends Traffic {
  readonly address: string;
  /** `namespace/name`; null where it is not known: a running daemon does not keep it. */
  readonly pod: string | null;
  readonly node: string;
  readonly slice: string;
  readonly state: "ready" | "terminating" | "not ready";
  readonly isLocal: boolean;
  readonly zoneHints: readonly string[];
  readonly nodeHints: readonly string[];
  /** What each policy makes of it; null when no client of this service port is under that policy. */
  readonly cluster: ExplainedUse | null;
  readonly local: ExplainedUse | null;
}

export interface ExplainedUse {
  readonly used: boolean;
  /** In words. */
  readonly why: string;
  /** Part of the connections that it gets, from 0 to 1. */
  readonly share: number;
}
