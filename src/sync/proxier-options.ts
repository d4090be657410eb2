/** What a {@link Proxier} is made of, and what it says of itself. */
import type { Clock } from "../async/clock.ts";
import type { ConntrackTable } from "../kernel/conntrack/conntrack.ts";
import type { LocalAddresses } from "../kernel/route/addresses.ts";
import type { Logger } from "../logging/logger.ts";
import type { FrontendConflict } from "../model/owned-services.ts";
import type { Backend, SyncFailure } from "./backend.ts";
import type { ConnectionEnding } from "./gone-connections.ts";
import type { SyncJournal } from "./journal/sync-journal.ts";
import type { HealthReporter, ServiceHealthPorts, SyncMetrics } from "./observers.ts";
import type { CostlyService } from "./portions.ts";

export interface ProxierOptions {
  readonly nodeName: string;
  readonly backend: Backend;
  readonly metrics: SyncMetrics;
  readonly health: HealthReporter;
  readonly serviceHealth: ServiceHealthPorts;
  readonly conntrack: ConntrackTable;
  /** @default none is known, and flows to node ports without endpoints stay */
  readonly localAddresses?: LocalAddresses;
  readonly periods: {
    /** `minSyncPeriod`. */
    readonly minMs: number;
    /** The user chose `minMs`: it alone decides, and not what the mode says of its pace. @default false */
    readonly isMinChosen?: boolean;
    /** `syncPeriod`: how long after a failure it is tried again. */
    readonly syncMs: number;
    /** Between full syncs that nothing else asks for. @default one hour */
    readonly fullMs?: number;
  };
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
  readonly clock: Clock;
  readonly log: Logger;
  /**
   * Told what the kernel refused, after every sync that left such parts or could program nothing, and once with nothing
   * when all are gone.
   */
  readonly onFailures?: (failures: readonly SyncFailure[]) => void;
  /** Called for every frontend that a service port has lost to another one. */
  readonly onConflict?: (conflict: FrontendConflict) => void;
  /** Called for a Service that took long to program. */
  readonly onCostlyService?: (costly: CostlyService) => void;
  /** Where every sync is written down, with its causes. @default nowhere */
  readonly journal?: SyncJournal;
  /** @default connections of TCP are left alone */
  readonly ending?: ConnectionEnding;
}

/** Where a proxier stands, for tests and for people. */
export interface ProxierStatus {
  /** Services and endpoint slices have both been handed over completely. */
  readonly isInitialised: boolean;
  readonly isSyncing: boolean;
  readonly needsFullSync: boolean;
  /** The last sync did not bring the kernel to the wanted state. */
  readonly isFailing: boolean;
  /** Refused by the kernel in the last sync; a single entry for all rules when it could not program anything. */
  readonly failures: readonly SyncFailure[];
  /** {@link Backend.remarks} */
  readonly remarks: readonly string[];
}
