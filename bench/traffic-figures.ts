/** What the bench of the userspace mode measures, and what its programs say to each other. */

/** The ways from a client to an endpoint that are compared. */
export const WAYS = ["direct", "pipe", "relay", "userspace", "iptables"] as const;
export type Way = (typeof WAYS)[number];

/** What a client does; see traffic-client.ts. */
export const LOADS = ["connections", "download", "upload", "answers", "first answers"] as const;
export type Load = (typeof LOADS)[number];

/** What a client counted. */
export interface ClientFigures {
  readonly seconds: number;
  /** Connections, bytes or answers. */
  readonly count: number;
  /** Of each answer; empty for other loads. Milliseconds. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpuMs: number;
}

/** One load over one way. */
export interface TrafficFigures extends Omit<ClientFigures, "cpuMs"> {
  /** Of what stands between client and endpoint as a process; 0 without one. */
  readonly proxyCpuMs: number;
  /** Of client, proxy and endpoint: work of the kernel is in whichever it happened to be done for. */
  readonly allCpuMs: number;
}

/** The rounds of a load, by way. */
export type TrafficResults = Readonly<Record<Load, Readonly<Record<Way, readonly TrafficFigures[]>>>>;

/** How a client begins, so that the server knows what is wanted: one byte. */
export const OPENING: Readonly<Record<Load, string>> = {
  connections: "C",
  download: "D",
  upload: "U",
  answers: "E",
  "first answers": "C",
};
