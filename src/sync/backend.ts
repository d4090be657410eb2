/**
 * The seam between the layers in front of a proxy mode and the mode itself. A mode is one folder under `dataplane/` that
 * implements {@link Backend} for one address family; trackers, scheduling, health, metrics and conntrack clean-up are
 * shared (`sync/proxier.ts`).
 */
import type { LedFlow } from "../kernel/conntrack/conntrack.ts";
import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePort } from "../model/service-port.ts";
import type { Flow } from "../net/flow.ts";
import type { IpFamily } from "../net/ip.ts";

/** Everything a sync may look at. The maps are live: they do not change while the sync runs. */
export interface SyncInput {
  /** Whether every name must be rewritten, not only what changed. */
  readonly isFullSync: boolean;
  /** By {@link ServicePortName.key}. */
  readonly services: ReadonlyMap<string, ServicePort>;
  /** By {@link ServicePortName.key}; each list sorted by `text`, never empty. */
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]>;
  /** Number of endpoints of ports in `services`, kept incrementally: sum over service ports, any readiness. */
  readonly endpointCount: number;
  /**
   * Keys of service ports that were added, changed or removed, or whose endpoints were, since the last sync that resolved:
   * what a sync that rejects was given is given again, and in full. What a sync names in {@link SyncOutcome.failures} is the
   * backend's to try again, with every sync.
   */
  readonly changedPorts: ReadonlySet<string>;
  /** Zone of this node; `undefined` when it has no zone label. */
  readonly zone: string | undefined;
  /** Union of all ServiceCIDRs, as text. */
  readonly serviceCIDRs: readonly string[];
}

/** A service port (or a part of the rules that belongs to none) that the kernel refused. */
export interface SyncFailure {
  /** `namespace/name:port`, or a description such as `stale chain KUBE-SEP-…`. */
  readonly subject: string;
  readonly reason: string;
  /** Every service depends on it, so that the node is not healthy. @default only what it names is not as it should be */
  readonly concernsAll?: true;
}

/** The outcome of a sync that reached the kernel. A sync that could not program anything throws instead. */
export interface SyncOutcome {
  /**
   * Refused parts; everything else is in the kernel. Non-empty means the sync counts as failed and is retried. The backend
   * remembers them: they are not among the changed ports of the next sync.
   */
  readonly failures: readonly SyncFailure[];
  /** Service ports with a Local policy, endpoints somewhere and none here. */
  readonly noLocalEndpoints: { readonly internal: number; readonly external: number };
  /**
   * Frontends of other protocols than TCP whose rules were deleted, as `frontendKey` writes them: also those of an earlier process, of
   * which the model knows nothing. Absent where the mode cannot tell.
   */
  readonly goneFrontends?: ReadonlySet<string>;
  /** For people; absent where the mode does not count it. */
  readonly written?: Written;
  /** Everything was looked at or written, asked for or not: how long that took says nothing of the changed ports. @default what was asked */
  readonly wasFull?: boolean;
}

/** What a sync has written. */
export interface Written {
  /** How often each thing was done, by what it is in the words of the mode: `add element`. */
  readonly counts: Readonly<Record<string, number>>;
  /** Time that went by while the kernel or its tools worked; absent where it is not measured. */
  readonly kernelMs?: number;
}

/** Rules that another program destroyed, as far as the mode can tell. */
export interface LostRules {
  /** Keys of the service ports whose rules must be written again; nothing else was touched. */
  readonly ports: ReadonlySet<string>;
}

/** Called with what must be written again; without `lost`, everything. @param by the program that did it, where it is known. */
export type OnLostRules = (lost?: LostRules, by?: string) => void;

/** Connections of a mode that connection tracking does not know, or not whole. Nothing of it costs anything until it is asked for. */
export interface LedConnections {
  /** Visits each; those that begin or end meanwhile, perhaps. */
  read(visit: (flow: LedFlow) => void): Promise<void>;
  /**
   * Ends these of TCP, others of conntrack's among them, as far as they are on this machine. @returns which were.
   * @default the clients' sockets end
   */
  end?(flows: readonly (Flow & Partial<LedFlow>)[]): Promise<ReadonlySet<Flow>>;
  /** Takes away what leads further packets of these; called between syncs, before they are ended. @default there is nothing */
  release?(flows: readonly Flow[]): Promise<void>;
  /** Whether conntrack marks what the mode leads as translated. @default it does */
  readonly isMarked?: false;
}

/** One proxy mode for one family. Calls of `sync` never overlap. */
export interface Backend {
  readonly family: IpFamily;
  /** The value of `mode` in the configuration, as `/proxyMode` prints it. */
  readonly mode: string;
  /** Brings the kernel to the state that `input` describes. Rejects when nothing could be programmed. */
  sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome>;
  /**
   * Watches for other programs destroying our rules until the signal aborts; calls `onLost` with what must be written
   * again, or with nothing when a full sync is due, and `requestSync` when nothing was destroyed but the host has changed.
   * Optional: a mode without it has nothing to watch.
   */
  monitor?(onLost: OnLostRules, signal: AbortSignal, requestSync: () => void): Promise<void>;
  /**
   * For modes that hold more than rules: called after the last sync, when the process is told to stop. Resolves when the
   * process may end. Another call does nothing.
   */
  close?(): Promise<void>;
  /**
   * Whether flows lead to this process and not to endpoints, so that the mode alone knows which of the connection
   * tracking table's are stale.
   */
  readonly endsFlows?: boolean;
  /**
   * How long after a sync the next one should wait at least, as far as the mode knows from what syncs cost. Counts where the
   * user has not chosen `minSyncPeriod`. Optional: only `minSyncPeriod` counts then.
   */
  readonly restMs?: number;
  /**
   * Of more changed service ports only so many are handed over at once, so that other changes need not wait for all of them. For modes
   * whose changes cost what is changed. @default all at once
   */
  readonly portsAtOnce?: number | undefined;
  /** Overrides whether the periodic full sync may be skipped (iptables large-cluster mode). */
  readonly skipsPeriodicFullSync?: boolean;
  /**
   * For modes that carry the connections themselves: how many are open to each endpoint (its `ip:port`) of the service port with
   * this key. @default only the kernel knows
   */
  openConnections?(key: string): ReadonlyMap<string, number>;
  /** @default connection tracking knows all */
  readonly led?: LedConnections;
  /** What people should know of how the mode is working, beside failures: whole sentences without a full stop. @default none */
  readonly remarks?: readonly string[];
  /** What the mode does in a lesser way than it was asked to, and why; everything is served all the same. @default nothing */
  readonly degraded?: readonly SyncFailure[];
  /** Whether the rules depend on {@link SyncInput.serviceCIDRs}, so that a change of them calls for a full sync. */
  readonly usesServiceCIDRs?: boolean;
}
