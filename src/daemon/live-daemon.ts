/** A running daemon with all that is known of its node, for the page. */

import type { Clock } from "../async/clock.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import type { Logger } from "../logging/logger.ts";
import type { LoggedProblem } from "../logging/problem-memory.ts";
import type { LocalTrafficDetector } from "../model/local-traffic-detector.ts";
import type { NodePortAddresses } from "../model/node-port-addresses.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { ConnectionLimits } from "../server/http/connection-gate.ts";
import type { InspectedDaemon, InspectedFamily } from "./inspect-report.ts";

export interface LiveFamily extends InspectedFamily {
  readonly family: IpFamily;
  readonly nodeIP: IpAddress;
  readonly detector: LocalTrafficDetector;
  readonly nodePortAddresses: NodePortAddresses;
  readonly serviceCIDRs: () => readonly string[];
}

export interface LiveDaemon extends InspectedDaemon {
  readonly families: readonly LiveFamily[];
  readonly config: KubeProxyConfig;
  readonly podCIDRs: readonly string[];
  /** Warnings and errors of the log, the newest first. */
  readonly problems: () => readonly LoggedProblem[];
}

/** What a server of the page is given besides. */
export interface PageContext {
  readonly limits: ConnectionLimits;
  readonly log: Logger;
  readonly clock: Clock;
  /** Ends it. */
  readonly signal: AbortSignal;
}

/** Serves the page until the signal aborts. Never rejects. */
export type ServePage = (daemon: LiveDaemon, context: PageContext) => Promise<void>;
