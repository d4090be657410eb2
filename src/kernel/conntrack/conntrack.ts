import type { Flow } from "../../net/flow.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import type { Protocol } from "../../net/protocol.ts";
import type { ConntrackStatistics } from "./statistics.ts";

/** Which entries are asked for: all that are not ruled out. The kernel leaves the others out; one that cannot sends them, and they are left out here. */
export interface FlowFilter {
  readonly protocol?: Protocol;
  /** Where the first packet went. */
  readonly address?: IpAddress;
  /** Likewise; needs a protocol. */
  readonly port?: number;
  /** Only those whose destination was translated. @default false */
  readonly isTranslated?: boolean;
}

/** What went one way, with `nf_conntrack_acct`. */
export interface Carried {
  readonly packets: number;
  readonly bytes: number;
}

/** An entry of the table. What the kernel does not say is undefined. */
export interface TrackedFlow extends Flow {
  /** Tells it from later flows between the same ends. */
  readonly id?: number | undefined;
  readonly isAnswered?: boolean | undefined;
  /** UDP: several packets went both ways; TCP: it was established. */
  readonly isAssured?: boolean | undefined;
  /** Of TCP and SCTP, in the kernel's words: `ESTABLISHED`. */
  readonly state?: string | undefined;
  /** Until it is forgotten if nothing comes. */
  readonly timeoutSeconds?: number | undefined;
  /** To the endpoint. */
  readonly sent?: Carried | undefined;
  readonly received?: Carried | undefined;
  /** Unix time, with `nf_conntrack_timestamp`. */
  readonly startMs?: number | undefined;
  /** Of sockets of TCP: smoothed. */
  readonly rttMs?: number | undefined;
  /** Segments sent again since it began. */
  readonly retransmits?: number | undefined;
}

/** A connection that connection tracking does not know, or not whole. */
export interface LedFlow extends TrackedFlow {
  /** Tells it from all others. */
  readonly socket: string;
  /** Whose it is, where this process carries it: what it goes to is a socket of this process. */
  readonly carriedFor?: string;
}

/** The kernel's connection tracking table (reference sync.md §13.2). */
export interface ConntrackTable {
  /**
   * Dumps the flows of a family, in portions between which other work has its turn; keeps none of them. Those in a conntrack zone are
   * left out: service traffic is tracked in the default zone.
   *
   * @param begin called when the dump begins, and again when the kernel says that it was interrupted; gives what is told each flow.
   * @returns whether the last dump was complete.
   */
  readFlows(family: IpFamily, filter: FlowFilter, begin: () => (flow: TrackedFlow) => void): Promise<boolean>;
  /** Deletes the flow if it is still answered by the same; resolves to false when it is not there any more. */
  deleteFlow(family: IpFamily, flow: Flow): Promise<boolean>;
  /** How full it is; absent where there is no table. */
  readonly statistics?: () => Promise<ConntrackStatistics>;
}

/** For nodes without netfilter: there is no flow to find or delete. */
export const NO_CONNTRACK: ConntrackTable = {
  readFlows: async () => true,
  deleteFlow: async () => false,
};
