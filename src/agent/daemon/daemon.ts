/** What the steps of the daemon share. */
import type { BigIntStats } from "node:fs";
import type { Clock } from "../../async/clock.ts";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { FeatureGates } from "../../contract/config/feature-gates.ts";
import type { Logger } from "../../logging/logger.ts";
import type { ProblemMemory } from "../../logging/problem-memory.ts";
import type { RegisteredMode } from "../../modes/registry.ts";
import type { Events } from "../cluster/apiserver/events/events.ts";
import type { ProxyHealth } from "../server/health/proxy-health.ts";
import type { ServerLimits } from "../server/http/connection-gate.ts";
import type { ProxyMetrics } from "../server/metrics/metrics.ts";
import type { SyncJournal } from "../sync/journal/sync-journal.ts";
import type { LoadPage } from "./inspect-report.ts";
import type { NodeKernel } from "./node-kernel.ts";

/** What the command line adds to the configuration; a text is empty if it was not given. */
export interface RunOptions {
  readonly config: KubeProxyConfig;
  /** See `shortestSyncPeriodMs`. */
  readonly isMinSyncPeriodSet: boolean;
  /** False if the mode is the system's default, which is going to change. */
  readonly isModeSet: boolean;
  /** Folder of manifests to use instead of the API server. */
  readonly manifests: string;
  readonly inspectSocket: string;
  /** Where the page is served, besides the socket. */
  readonly inspectBindAddress: string;
  readonly loadPage: LoadPage;
  /** Key of the taint to remove from the Node once the rules are in force. */
  readonly startupTaint: string;
  /** `namespace/name:port`, which /healthz connects to. */
  readonly healthzService: string;
  /** The warnings and errors of the log; undefined if nothing shows them. */
  readonly problems: ProblemMemory | undefined;
  readonly master: string;
  /** Watched: a change ends the process. */
  readonly configFile: string;
  /** Before it was read; undefined: writes count from the start of the watch. */
  readonly configFileState: BigIntStats | undefined;
  readonly initOnly: boolean;
  /** Every flag and its value, for /flagz. */
  readonly flags: ReadonlyMap<string, string>;
  /** `v1.37.0`, possibly with a suffix. */
  readonly version: string;
  readonly setVerbosity: (level: number) => void;
  /** The program starts to exit because something it was built on has changed. */
  readonly onFatal: () => void;
  readonly log: Logger;
}

/** Created once, before anything is known about the node. */
export interface Daemon {
  readonly options: RunOptions;
  readonly mode: RegisteredMode;
  readonly gates: FeatureGates;
  readonly nodeName: string;
  readonly kernel: NodeKernel;
  readonly limits: ServerLimits;
  readonly health: ProxyHealth;
  readonly metrics: ProxyMetrics;
  /** Kept if anything can ask for it. */
  readonly journal: SyncJournal | undefined;
  readonly clock: Clock;
  /** Sending has already begun, so that the last event has a chance. */
  readonly events: Events;
  readonly log: Logger;
  /** Aborts when everything must stop. */
  readonly ended: AbortSignal;
  /** Ends the program with this error. */
  readonly fatal: (error: Error) => void;
}
