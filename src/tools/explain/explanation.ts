/** What `kube-proxy explain` says about one service port on one node, as data: `-o json`. Names and shapes may still change. */
import type { KernelPart } from "../../contract/inspection.ts";
import type { ModeWords, NotTaken } from "../../contract/mode-words.ts";
import type { FrontendKind } from "../../model/frontend.ts";
import type { Hashing } from "../../net/balancing.ts";
import type { IpFamily } from "../../net/ip.ts";

/** Where a client is: a pod of this node, this node itself, another node, outside the cluster. */
export const POSITIONS = ["pod", "node", "other-node", "outside"] as const;
export type Position = (typeof POSITIONS)[number];

/** Why a client gets no answer, or not the one that the policy promises. */
export type ReachReason =
  | "no-endpoint"
  | "no-local-endpoint"
  | "answers-lost"
  | "not-by-bridge"
  | "no-node-port-address"
  | "left-to-the-node"
  | "no-cluster-cidr"
  | "other-frontend"
  | "not-known"
  | "policy"
  | NotTaken;

export interface Encounter {
  readonly position: Position;
  readonly outcome: "answered" | "refused" | "dropped" | "passed-by" | "not-known";
  /** Which endpoints answer; undefined if none does. */
  readonly endpoints: "all" | "local" | undefined;
  /** The client address that the endpoint sees: the client's, the Service's, or another. Undefined if none answers. */
  readonly source: "kept" | "service-address" | ModeWords["otherSource"] | undefined;
  readonly reason: ReachReason;
  /** Who answers, or why there is no answer. */
  readonly words: string;
  /** Whether this holds only for clients in `loadBalancerSourceRanges`; others are dropped. */
  readonly onlyListedSources: boolean;
}

/** One service port, as one node sees it in one family. */
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
  /** The hash of the client that chooses endpoints; absent: they are chosen at random, or the mode knows no hash. */
  readonly balancing?: { readonly hash: Hashing; readonly seed: number };
  readonly frontends: readonly ExplainedFrontend[];
  readonly endpoints: readonly ExplainedEndpoint[];
  /** Duplicate endpoints that do not count, and entries that make no endpoint. */
  readonly passedOver: readonly { readonly slice: string; readonly why: string }[];
  /** Sentences about why clients do not reach all endpoints: policies, hints, what is missing. */
  readonly causes: readonly string[];
  /** Sentences about what else matters. */
  readonly decisions: readonly string[];
  readonly kernel: readonly KernelPart[];
  /** What the numbers of {@link Traffic} mean, and what is not known; missing if the kernel was not asked. */
  readonly trafficNotes?: readonly string[];
}

/** The kernel's counts; null: not known; missing: not asked. */
export interface Traffic {
  /** Connections in the conntrack table now. */
  readonly open?: number | null;
  /** Connections since the kernel started to count. */
  readonly counted?: number | null;
  /** Packets of new connections that rules rejected (`refused`) or dropped at a frontend. */
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
  /** 0 if there is none. */
  readonly healthCheckNodePort: number;
  /** Ready endpoints on this node, which the health check counts. */
  readonly localReady: number;
}

export interface ExplainedFrontend extends Traffic {
  readonly kind: FrontendKind;
  /** Null for a node port. */
  readonly address: string | null;
  readonly port: number;
  readonly policy: "Cluster" | "Local";
  readonly fate: "serve" | "drop" | "refuse" | "lost";
  /** The service port that has this address instead; null if it is this one. */
  readonly owner: string | null;
  /** Where a node port answers: addresses, or "every address of the node". Null for others. */
  readonly answersAt: string | null;
  /** A sentence about this node port at the loopback address. Null for other frontends, and without endpoints. */
  readonly atLoopback: string | null;
  /** What this node's sockets meet here according to the kernel's maps, a line for each fact; missing if they were not read. */
  readonly sockets?: readonly string[];
  /** Empty if the frontend belongs to another service port. */
  readonly clients: readonly Encounter[];
}

export interface ExplainedEndpoint extends Traffic {
  readonly address: string;
  /** `namespace/name`; null if not known: a running daemon does not keep it. */
  readonly pod: string | null;
  readonly node: string;
  /** Absent if its slice does not say. */
  readonly zone?: string;
  readonly slice: string;
  readonly state: "ready" | "terminating" | "not ready";
  readonly isLocal: boolean;
  readonly zoneHints: readonly string[];
  readonly nodeHints: readonly string[];
  /** Of its slice; absent if no annotation names one. */
  readonly weight?: number;
  /** How each policy uses it; null if no client of this service port is under that policy. */
  readonly cluster: ExplainedUse | null;
  readonly local: ExplainedUse | null;
}

/** Whether some client can get it. */
export const isUsed = ({ cluster, local }: ExplainedEndpoint): boolean =>
  cluster?.used === true || local?.used === true;

export interface ExplainedUse {
  readonly used: boolean;
  /** In words. */
  readonly why: string;
  /** The share of connections that it gets, from 0 to 1. */
  readonly share: number;
}
