/** What the steps of the daemon share. */
import type { BigIntStats } from "node:fs";
import type { Clock } from "../async/clock.ts";
import type { EventRecorder } from "../cluster/apiserver/events/events.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import type { FeatureGates } from "../config/feature-gates.ts";
import type { RegisteredMode } from "../dataplane/registry.ts";
import type { Logger } from "../logging/logger.ts";
import type { ProblemMemory } from "../logging/problem-memory.ts";
import type { ProxyHealth } from "../server/health/proxy-health.ts";
import type { ServerLimits } from "../server/http/connection-gate.ts";
import type { ProxyMetrics } from "../server/metrics/metrics.ts";
import type { SyncJournal } from "../sync/journal/sync-journal.ts";
import type { ServePage } from "./inspect-report.ts";
import type { NodeKernel } from "./node-kernel.ts";

/** What the command line adds to the configuration; a text is empty where it was not given. */
export interface RunOptions {
  readonly config: KubeProxyConfig;
  /** See `shortestSyncPeriodMs`. */
  readonly isMinSyncPeriodSet: boolean;
  /** False where the system's default mode holds, which is to change. */
  readonly isModeSet: boolean;
  /** Folder of manifests in place of the API server. */
  readonly manifests: string;
  readonly inspectSocket: string;
  /** Serves the page; undefined: none. */
  readonly servePage: ServePage | undefined;
  /** Key of the taint that is taken from the Node once the rules are in force. */
  readonly startupTaint: string;
  /** `namespace/name:port`, which /healthz connects to. */
  readonly healthzService: string;
  /** What the log has complained about; undefined when nothing shows it. */
  readonly problems: ProblemMemory | undefined;
  readonly master: string;
  /** Watched for changes, which end the process. */
  readonly configFile: string;
  /** Before it was read; undefined: writes count from the start of the watch. */
  readonly configFileState: BigIntStats | undefined;
  readonly initOnly: boolean;
  /** Every flag and its value, for /flagz. */
  readonly flags: ReadonlyMap<string, string>;
  /** `v1.37.0`, perhaps with a suffix. */
  readonly version: string;
  readonly setVerbosity: (level: number) => void;
  /** The program begins to end, as what it was built on has changed. */
  readonly onFatal: () => void;
  readonly log: Logger;
}

/** Made once, before anything is known of the node. */
export interface Daemon {
  readonly options: RunOptions;
  readonly mode: RegisteredMode;
  readonly gates: FeatureGates;
  readonly nodeName: string;
  readonly kernel: NodeKernel;
  readonly limits: ServerLimits;
  readonly health: ProxyHealth;
  readonly metrics: ProxyMetrics;
  /** Kept when anything can ask for it. */
  readonly journal: SyncJournal | undefined;
  readonly clock: Clock;
  /** Already being sent, so that the last one has a chance. */
  readonly events: EventRecorder;
  readonly log: Logger;
  /** Everything stops. */
  readonly ended: AbortSignal;
  /** The program must end with this error. */
  readonly fatal: (error: Error) => void;
}
