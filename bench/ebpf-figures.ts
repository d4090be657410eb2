/** What `npm run bench -- ebpf` hands from process to process. */

/** Socket programs in front of the flat rules, or the rules of the nftables mode in upstream's layout. */
export type ConnectedMode = "ebpf" | "compatible";

/** Maps and rules, or the same rules alone. */
export type ChangedMode = "ebpf" | "flat";

/** What changes: an endpoint is replaced, or a service goes and comes back with its endpoints. */
export const CHANGE_KINDS = ["an endpoint replaced", "a service removed", "a service added"] as const;
export type ChangeKind = (typeof CHANGE_KINDS)[number];

export type EbpfTask =
  | { readonly what: "maps"; readonly services: number; readonly changes: number; readonly cgroup: string }
  | {
      readonly what: "connect";
      readonly mode: ConnectedMode;
      readonly services: number;
      readonly cgroup: string;
    }
  | {
      readonly what: "changes";
      readonly mode: ChangedMode;
      readonly services: number;
      readonly changes: number;
      readonly cgroup: string;
    }
  | { readonly what: "churn"; readonly connections: number; readonly cgroup: string };

/** Beside what the packet path costs. */
export interface MapsFigures {
  readonly services: number;
  readonly fillCpuMs: number;
  /** Of one endpoint that is replaced: its service port planned, and the maps written. No system call is needed for it. */
  readonly mapWorkP50Us: number;
  readonly mapWorkP99Us: number;
  /** From the change of the endpoint in the model to the maps. */
  readonly effectP50Ms: number;
  readonly effectP99Ms: number;
  /** From the line of a watch, not yet parsed. */
  readonly eventP50Ms: number;
  readonly eventP99Ms: number;
  /** From there until another process, which tries all the time, has a connection to the new endpoint. */
  readonly reachedP50Ms: number;
  readonly reachedP99Ms: number;
  readonly reachedCount: number;
  /** How long one of its attempts takes, p50. */
  readonly attemptUs: number;
  readonly heapMb: number;
  /** Of the kernel. */
  readonly kernelMb: number;
}

/** From the model until the sync is done: all that the mode writes, with the nftables transaction. */
export type ChangesFigures = Readonly<Record<ChangeKind, ChangeFigures>>;

export interface ChangeFigures {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly worstMs: number;
  readonly cpuMs: number;
}

export interface ChurnFigures {
  readonly connections: number;
  readonly failures: number;
  readonly changes: number;
  readonly linkUpdates: number;
  readonly seconds: number;
}
