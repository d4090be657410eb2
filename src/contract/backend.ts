/**
 * The interface between a proxy mode and the layers in front of it. A mode is a folder under `modes/` that
 * implements {@link Backend} for one address family; trackers, scheduling, health, metrics and conntrack cleanup are
 * shared (`agent/sync/proxier.ts`).
 */
import type { LedFlow } from "../kernel/conntrack/conntrack.ts";
import type { ChainHistory } from "../kernel/nftables/nftables.ts";
import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePort } from "../model/service-port.ts";
import type { Flow } from "../net/flow.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";

/** Everything a sync may look at. The maps are live: they do not change while the sync runs. */
export interface SyncInput {
  /** Whether to rewrite everything, not only what changed. */
  readonly isFullSync: boolean;
  /** By {@link ServicePortName.key}. */
  readonly services: ReadonlyMap<string, ServicePort>;
  /** By {@link ServicePortName.key}; each list sorted by `text`, never empty. */
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]>;
  /** Number of endpoints of all ports in `services`, ready or not; kept incrementally. */
  readonly endpointCount: number;
  /**
   * Keys of service ports that were added, changed or removed, or whose endpoints changed, since the last sync
   * that resolved: after one that rejects, the next is full and gets its keys again. The backend itself retries what it
   * named in {@link SyncOutcome.failures}: with every sync, or where that takes a comparison of everything, less often.
   */
  readonly changedPorts: ReadonlySet<string>;
  /** Zone of this node; `undefined` when it has no zone label. */
  readonly zone: string | undefined;
  /** Union of all ServiceCIDRs, as text. */
  readonly serviceCIDRs: readonly string[];
  /** The names of the other Nodes by their addresses, of both families. @default not known */
  readonly otherNodes?: ReadonlyMap<IpAddress, string>;
  /** Whether {@link SyncOutcome.formerEndpoints} are used. @default they are not */
  readonly wantsFormerEndpoints?: () => boolean;
}

/** A service port, or a part of the rules that belongs to none, that the kernel rejected. */
export interface SyncFailure {
  /** `namespace/name:port`, or a description such as `stale chain KUBE-SEP-…`. */
  readonly subject: string;
  readonly reason: string;
  /** Every Service depends on it, so the node is unhealthy. @default only the named part is affected */
  readonly concernsAll?: true;
}

/** The outcome of a sync that reached the kernel. A sync that could not program anything throws instead. */
export interface SyncOutcome {
  /**
   * Rejected parts; everything else is in the kernel. If not empty, the sync counts as failed and is retried. The
   * backend remembers these parts: they are not among the next sync's changed ports.
   */
  readonly failures: readonly SyncFailure[];
  /**
   * Non-TCP frontends whose rules were deleted, as `frontendKey` writes them; includes frontends of an earlier process,
   * which the model does not know. Absent if the mode cannot tell.
   */
  readonly goneFrontends?: ReadonlySet<string>;
  /** The first sync: TCP endpoints to which the rules of an earlier process led, at least those that are gone. @default none is known */
  readonly formerEndpoints?: Iterable<FormerEndpoint>;
  /** For display; absent if the mode does not count it. */
  readonly written?: Written;
  /** The sync checked or wrote everything, requested or not, so its duration says nothing about the changed ports. @default as requested */
  readonly wasFull?: boolean;
}

/** A TCP endpoint that an earlier process's rules had. */
export interface FormerEndpoint {
  /** {@link ServicePortName.key}, or where the rules do not name it, an address at which it answered. */
  readonly owner: string | { readonly address: IpAddress; readonly port: number };
  /** `ip:port` */
  readonly endpoint: string;
}

/** What a sync wrote. */
export interface Written {
  /** Operation counts by the mode's name for the operation: `add element`. */
  readonly counts: Readonly<Record<string, number>>;
  /** Time spent waiting for the kernel or its tools; absent if not measured. */
  readonly kernelMs?: number;
}

/** Rules that another program destroyed, as far as the mode can tell. */
export interface LostRules {
  /** Keys of the service ports whose rules must be rewritten; nothing else was touched. */
  readonly ports: ReadonlySet<string>;
}

/** Called with what must be rewritten; without `lost`, everything. @param by the program that destroyed it, if known. */
export type OnLostRules = (lost?: LostRules, by?: string) => void;

/** Connections of a mode that connection tracking does not know, or knows only in part. Costs nothing until it is asked. */
export interface LedConnections {
  /** Visits each connection; those that begin or end meanwhile may be missed. */
  read(visit: (flow: LedFlow) => void): Promise<void>;
  /**
   * Ends these TCP connections, also those of conntrack, as far as they are on this machine. @returns those it ended.
   * @default the clients' sockets are ended
   */
  end?(flows: readonly (Flow & Partial<LedFlow>)[]): Promise<ReadonlySet<Flow>>;
  /** Removes what directs further packets of these flows; called between syncs, before the connections end. @default there is nothing */
  release?(flows: readonly Flow[]): Promise<void>;
  /** Whether conntrack marks the mode's connections as translated. @default true */
  readonly isMarked?: false;
}

/** One proxy mode for one family. Calls of `sync` never overlap. */
export interface Backend {
  readonly family: IpFamily;
  /** The value of `mode` in the configuration, as `/proxyMode` prints it. */
  readonly mode: string;
  /** Brings the kernel to the state that `input` describes. Rejects if nothing could be programmed. */
  sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome>;
  /**
   * Watches until the signal aborts for other programs destroying our rules. Calls `onLost` with what must be
   * rewritten, or with nothing when a full sync is due, and `requestSync` when the host changed but no rules were lost.
   * Optional: a mode without it has nothing to watch.
   */
  monitor?(onLost: OnLostRules, signal: AbortSignal, requestSync: () => void): Promise<void>;
  /**
   * For modes that hold more than rules: called after the last sync when the process stops. Resolves when the process
   * may exit. Further calls do nothing.
   */
  close?(): Promise<void>;
  /**
   * Whether flows lead to this process instead of endpoints, so that only the mode knows which conntrack entries are
   * stale.
   */
  readonly endsFlows?: boolean;
  /**
   * Minimum pause between two syncs, as the mode estimates it from what syncs cost. Applies if the user has not set
   * `minSyncPeriod`. Optional: without it, only `minSyncPeriod` applies.
   */
  readonly restMs?: number;
  /**
   * Maximum number of changed service ports per partial sync, so that other changes need not wait for all. For modes
   * whose sync cost grows with the number of changes. @default no limit
   */
  readonly portsAtOnce?: number | undefined;
  /** Whether Local policies without an endpoint on this node are counted by Service, as upstream does in this mode. @default by service port */
  readonly countsServices?: true;
  /** Overrides whether the periodic full sync may be skipped (iptables large-cluster mode). */
  readonly skipsPeriodicFullSync?: boolean;
  /**
   * For modes that carry the connections themselves: number of open connections to each endpoint (its `ip:port`) of the
   * service port with this key. @default only the kernel knows
   */
  openConnections?(key: string): ReadonlyMap<string, number>;
  /** @default conntrack knows every connection */
  readonly led?: LedConnections;
  /** When base chains of nftables were registered, as far as the mode has seen it. @default not known */
  chainHistory?(): Promise<ChainHistory | undefined>;
  /** What users should know about how the mode is working, besides failures: whole sentences without a full stop. @default none */
  readonly remarks?: readonly string[];
  /** What works in a degraded way, and why; everything is still served. @default nothing */
  readonly degraded?: readonly SyncFailure[];
  /** Whether the rules depend on {@link SyncInput.serviceCIDRs}, so that a change to them requires a full sync. */
  readonly usesServiceCIDRs?: boolean;
  /** The same for {@link SyncInput.otherNodes}. */
  readonly usesOtherNodes?: boolean;
}
