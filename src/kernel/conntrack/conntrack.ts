import type { Flow } from "../../net/flow.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import type { Protocol } from "../../net/protocol.ts";
import type { ConntrackStatistics } from "./statistics.ts";

/** Selects entries; an absent field matches all. Kernels that cannot filter send all entries, and we filter them here. */
export interface FlowFilter {
  readonly protocol?: Protocol;
  /** The destination of the first packet. */
  readonly address?: IpAddress;
  /** The destination port of the first packet; requires a protocol. */
  readonly port?: number;
  /** Only those whose destination was translated. @default false */
  readonly isTranslated?: boolean;
  /** Only those that were never answered. @default false */
  readonly isUnanswered?: boolean;
}

/** Traffic in one direction; counted only with `nf_conntrack_acct`. */
export interface Carried {
  readonly packets: number;
  readonly bytes: number;
}

/** An entry of the table. A field that the kernel does not send is undefined. */
export interface TrackedFlow extends Flow {
  /** Distinguishes it from later flows with the same tuple. */
  readonly id?: number | undefined;
  readonly isAnswered?: boolean | undefined;
  /** UDP: several packets in both directions; TCP: it was established. */
  readonly isAssured?: boolean | undefined;
  /** For TCP and SCTP, the kernel's name of the state: `ESTABLISHED`. */
  readonly state?: string | undefined;
  /** Traffic to the endpoint. */
  readonly sent?: Carried | undefined;
  readonly received?: Carried | undefined;
  /** Unix time; only with `nf_conntrack_timestamp`. */
  readonly startMs?: number | undefined;
  /** Smoothed round-trip time; only for TCP sockets. */
  readonly rttMs?: number | undefined;
  /** Retransmitted segments since the start; only for TCP sockets. */
  readonly retransmits?: number | undefined;
}

/** A connection that connection tracking does not know, or knows only in part. */
export interface LedFlow extends TrackedFlow {
  /** The unique id of its socket. */
  readonly socket: string;
  /** The key of the service port, if this process relays the connection: then its destination is this process's socket. */
  readonly carriedFor?: string;
}

/** The kernel's connection tracking table (reference sync.md §13.2). */
export interface ConntrackTable {
  /**
   * Dumps the flows of a family without storing them, and yields to the event loop between portions. Skips those in a conntrack zone:
   * Service traffic is tracked in the default zone.
   *
   * @param begin called at the start of the dump, and again if it was interrupted; returns the visitor of flows.
   * @returns whether the last dump was complete.
   */
  readFlows(family: IpFamily, filter: FlowFilter, begin: () => (flow: TrackedFlow) => void): Promise<boolean>;
  /** Deletes the flow if it still has the same reply tuple. @returns false if there is no such flow any more. */
  deleteFlow(family: IpFamily, flow: Flow): Promise<boolean>;
  /** Absent if there is no table. */
  readonly statistics?: () => Promise<ConntrackStatistics>;
}

/** An empty table, for nodes without netfilter. */
export const NO_CONNTRACK: ConntrackTable = {
  readFlows: async () => true,
  deleteFlow: async () => false,
};
