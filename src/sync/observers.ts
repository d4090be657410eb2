/**
 * What the proxier tells the rest of the program, as the small interfaces it needs: health, per-service health ports
 * and metrics. Implemented in `server/`.
 */
import type { IpAddress, IpFamily } from "../net/ip.ts";

/** Proxy health state (reference health.md §15). */
export interface HealthReporter {
  /** The family's loop runs; nothing is known of its rules yet. */
  started(family: IpFamily): void;
  /** The family's rules are as the API wants them. */
  updated(family: IpFamily): void;
  /** A sync was asked for; remembers the time only if none is remembered yet. */
  queuedUpdate(family: IpFamily): void;
}

/** Health-check node ports of one family (reference health.md §14). */
export interface ServiceHealthPorts {
  /**
   * `namespace/name` → port, live; opens, keeps and closes listeners, and tries again what could not be opened.
   *
   * @param changed the Services to look at. @default all
   */
  syncServices(ports: ReadonlyMap<string, number>, changed?: ReadonlySet<string>): Promise<void>;
  /** From now on listens on these addresses alone, and tries again what could not be opened. */
  setAddresses(addresses: readonly IpAddress[]): Promise<void>;
  /** `namespace/name` → number of local ready endpoint IPs; absent means 0. @param changed as above */
  syncEndpoints(counts: ReadonlyMap<string, number>, changed?: ReadonlySet<string>): void;
  close(): Promise<void>;
}

/** The measurements of one family that all modes share (reference health.md §16). Durations are seconds, times Unix seconds. */
export interface SyncMetrics {
  observeSync(seconds: number, isFullSync: boolean): void;
  setLastSync(unixSeconds: number): void;
  setLastQueued(unixSeconds: number): void;
  /** Latency of one endpoint change, from its trigger time to the kernel. */
  observeNetworkProgramming(seconds: number): void;
  /** @param isPending the next sync has to do with it. */
  countEndpointChange(isPending: boolean): void;
  /** @param pending how many Services the next sync has to do with now. */
  countServiceChange(pending: number): void;
  /** A sync has begun that deals with all changes so far. */
  resetPending(): void;
  setNoLocalEndpoints(internal: number, external: number): void;
  observeConntrackCleanup(seconds: number, deleted: number): void;
  /** Another program destroyed rules of ours; they are being written again. */
  countRepair(): void;
  /** A single Service took longer than a second to program. */
  countCostlyService(): void;
  /** Connections to endpoints that were gone. */
  countEndedConnections(count: number): void;
}
