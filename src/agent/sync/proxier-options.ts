/** What a {@link Proxier} is built from, and its status. */
import type { Clock } from "../../async/clock.ts";
import type { Backend, SyncFailure } from "../../contract/backend.ts";
import type { HealthReporter, ServiceHealthPorts, SyncMetrics } from "../../contract/observers.ts";
import type { ConntrackTable } from "../../kernel/conntrack/conntrack.ts";
import type { LocalAddresses } from "../../kernel/route/addresses.ts";
import type { Logger } from "../../logging/logger.ts";
import type { ConflictSummary } from "../../model/owned-services.ts";
import type { StandingPort } from "../../model/standing-ports.ts";
import type { ConnectionEnding } from "./gone-connections.ts";
import type { SyncJournal } from "./journal/sync-journal.ts";
import type { CostlyService } from "./portions.ts";

export interface ProxierOptions {
  readonly nodeName: string;
  readonly backend: Backend;
  readonly metrics: SyncMetrics;
  readonly health: HealthReporter;
  readonly serviceHealth: ServiceHealthPorts;
  readonly conntrack: ConntrackTable;
  /** @default none is known, so flows to node ports without endpoints stay */
  readonly localAddresses?: LocalAddresses;
  readonly periods: {
    /** `minSyncPeriod`. */
    readonly minMs: number;
    /** The user set `minMs`: it alone applies, not the mode's own pace. @default false */
    readonly isMinChosen?: boolean;
    /** `syncPeriod`: the delay before a failed sync is retried. */
    readonly syncMs: number;
    /** Time between full syncs that nothing else requests. @default one hour */
    readonly fullMs?: number;
  };
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called for every frontend that a service port lost to another one. */
  readonly onConflict?: (conflict: ConflictSummary) => void;
  /** Called for a Service that took long to program. */
  readonly onCostlyService?: (costly: CostlyService) => void;
  /** Where every sync is recorded, with its causes. @default nowhere */
  readonly journal?: SyncJournal;
  /** @default TCP connections are left alone */
  readonly ending?: ConnectionEnding;
}

/** The status of a proxier, for tests and for display. */
export interface ProxierStatus {
  /** Services and EndpointSlices have both been received completely. */
  readonly isInitialised: boolean;
  readonly isSyncing: boolean;
  readonly needsFullSync: boolean;
  /** The last sync did not bring the kernel to the desired state. */
  readonly isFailing: boolean;
  /** Rejected by the kernel in the last sync; a single entry for all rules if nothing could be programmed. */
  readonly failures: readonly SyncFailure[];
  /** {@link Backend.remarks} */
  readonly remarks: readonly string[];
  /** Service ports whose rules the kernel rejected. @default none */
  readonly refused?: readonly StandingPort[];
}
