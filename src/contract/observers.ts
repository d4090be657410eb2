/**
 * The small interfaces through which the proxier reports to health, health-check node ports and metrics. Implemented in
 * `server/`.
 */
import type { IpAddress, IpFamily } from "../net/ip.ts";

/** Proxy health state (reference health.md §15). */
export interface HealthReporter {
  /** The family's loop runs; nothing is known about its rules yet. */
  started(family: IpFamily): void;
  /** The family's rules are as the API wants them. */
  updated(family: IpFamily): void;
  /** A sync was requested; keeps the time of the oldest pending request. */
  queuedUpdate(family: IpFamily): void;
}

/** Health-check node ports of one family (reference health.md §14). */
export interface ServiceHealthPorts {
  /**
   * `namespace/name` → port, live; opens, keeps and closes listeners, and retries those that could not be opened.
   *
   * @param changed the Services to check. @default all
   */
  syncServices(ports: ReadonlyMap<string, number>, changed?: ReadonlySet<string>): Promise<void>;
  /** Listens on these addresses alone from now on, and retries ports that could not be opened. */
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
  /** @param isPending whether the next sync must handle it. */
  countEndpointChange(isPending: boolean): void;
  /** @param pending number of Services that the next sync must handle. */
  countServiceChange(pending: number): void;
  /** A sync that covers all changes so far has begun. */
  resetPending(): void;
  setNoLocalEndpoints(internal: number, external: number): void;
  observeConntrackCleanup(seconds: number, deleted: number): void;
  /** Another program destroyed our rules; they are being rewritten. */
  countRepair(): void;
  /** A single Service took more than a second to program. */
  countCostlyService(): void;
  /** Counts connections that were ended because their endpoints are gone. */
  countEndedConnections(count: number): void;
}
