/**
 * What is measured of the nftables mode: the model and the backend of one family as the daemon has them, over the kernel of
 * this process's network namespace. The proxier around them only decides when; it is left out.
 */

import type { EndpointSliceRecord } from "../src/cluster/objects.ts";
import { CURRENT_RELEASE } from "../src/config/release.ts";
import { NftablesBackend } from "../src/dataplane/nftables/backend.ts";
import type { LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import { TABLE } from "../src/dataplane/nftables/names.ts";
import { RestartNote } from "../src/dataplane/nftables/restart-note.ts";
import { type NetlinkRuleset, openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import type { Nftables, NftOperation } from "../src/kernel/nftables/nftables.ts";
import { silentLogger } from "../src/logging/logger.ts";
import type { LostRules, SyncInput } from "../src/sync/backend.ts";
import { benchService, benchSlice, withReplacedEndpoint } from "./cluster.ts";
import { benchConfig, benchState } from "./subject.ts";

/** Operations of a transaction that are kept. */
const MAX_NOTED = 10_000;

/** A backend as the daemon has it. What the kernel refuses ends the bench. */
export function benchBackend(nft: Nftables, layout: LayoutName, restart?: RestartNote): NftablesBackend {
  const { localhostNodePorts: _no, conntrackLiberal: _none, ...config } = benchConfig();
  const fail = (what: string) => ({
    inc: () => {
      throw new Error(`a ${what} was refused`);
    },
  });
  return new NftablesBackend({
    config: { ...config, release: CURRENT_RELEASE },
    layout,
    nft,
    restart,
    nodePortIPs: async () => ({ kind: "ips", ips: [config.nodeIP] }),
    metrics: { syncFailures: fail("sync"), cleanupFailures: fail("deletion") },
    log: silentLogger,
  });
}

export class NftSubject {
  readonly state = benchState();
  readonly #ruleset: NetlinkRuleset;
  readonly #endpointsEach: number;
  readonly #layout: LayoutName;
  /** The slice that each service has, by number: the very objects that the model has, as the daemon's sources keep them. */
  readonly #slices: EndpointSliceRecord[] = [];
  /** Never aborts; one for all syncs, as in the daemon. */
  readonly #end = new AbortController();
  #backend: NftablesBackend;
  #isWithholding = false;
  #loaded = 1;
  /** Whether {@link lastOperations} is kept. */
  isNoting = true;
  /** Operations of the last transaction. */
  lastOperations: readonly NftOperation[] = [];
  /** Told of all operations of each transaction before it is sent, where {@link isNoting} is off. */
  onTransaction: ((operations: readonly NftOperation[]) => void) | undefined;
  transactions = 0;
  /** Time that the kernel has taken for transactions. */
  kernelMs = 0;

  constructor(endpointsEach: number, layout: LayoutName = "Compatible") {
    this.#layout = layout;
    this.#endpointsEach = endpointsEach;
    this.#ruleset = openNetlinkRuleset({
      onCommit: ({ milliseconds }) => {
        this.kernelMs += milliseconds;
      },
    });
    this.#backend = this.#newBackend();
  }

  /** What the backend asks for between two syncs. */
  get restMs(): number {
    return this.#backend.restMs;
  }

  /** Service number of the nth change: changes that follow each other are far apart. */
  scattered(n: number): number {
    return (n * 7919) % this.#loaded;
  }

  /** Watches the table as the daemon does. @returns how to end that. */
  async watch(onLost: (lost?: LostRules) => void): Promise<() => Promise<void>> {
    const stop = new AbortController();
    const watching = this.#backend.monitor(onLost, stop.signal, () => {});
    // Comes when the subscription is made. Reading the table would leave more garbage than all that is measured.
    await this.#ruleset.open({ family: "ip", table: TABLE }).mark();
    return async () => {
      stop.abort();
      await watching;
    };
  }

  /** Plans a change as if it were committed, which is then up to the caller. @returns the operations. */
  async withheld(change: () => void): Promise<readonly NftOperation[]> {
    this.#isWithholding = true;
    try {
      change();
      await this.syncChanges();
    } finally {
      this.#isWithholding = false;
    }
    return this.lastOperations;
  }

  /** Repairs what others have destroyed. */
  async syncLost({ ports }: LostRules): Promise<void> {
    await this.#sync(false, ports);
  }

  load(count: number): void {
    this.#loaded = count;
    for (let index = 0; index < count; index += 1) {
      this.setService(index, "add");
    }
    this.state.applyChanges();
  }

  /** A sync of everything by a backend that knows nothing: the first one, or the first after a restart. */
  async fullSync(isRestart: boolean): Promise<void> {
    if (isRestart) this.#backend = this.#newBackend();
    await this.#sync(true, new Set());
  }

  /** A process is told to stop, and nothing happens until the next one's first sync. @returns its processor time, milliseconds. */
  async restartAsLeft(): Promise<number> {
    const begin = (): RestartNote => {
      const options = { ruleset: this.#ruleset, table: { family: "ip", table: TABLE }, program: "bench" } as const;
      const note = new RestartNote({ ...options, log: silentLogger });
      this.#backend = this.#newBackend(note);
      return note;
    };
    const note = begin();
    await this.#sync(true, new Set());
    await this.#backend.close();
    await note.leave();
    begin();
    const cpu = process.cpuUsage();
    await this.#sync(true, new Set());
    const { user, system } = process.cpuUsage(cpu);
    return (user + system) / 1000;
  }

  /** Replaces an endpoint of a service, in the model only. */
  replaceEndpoint(index: number): void {
    const old = this.#sliceOf(index);
    const slice = withReplacedEndpoint(old, index, Number(old.resourceVersion));
    this.#slices[index] = slice;
    this.state.onEndpointSlice({ kind: "update", old, object: slice });
  }

  /** Adds a service with its endpoints, or removes it, in the model only. */
  setService(index: number, kind: "add" | "delete"): void {
    const slice = this.#sliceOf(index);
    this.state.onService({ kind, object: benchService(index) });
    this.state.onEndpointSlice({ kind, object: slice });
    if (kind === "add") this.#slices[index] = slice;
    else delete this.#slices[index];
  }

  #sliceOf(index: number): EndpointSliceRecord {
    return this.#slices[index] ?? benchSlice(index, this.#endpointsEach);
  }

  /** Commits what has changed in the model. */
  async syncChanges(): Promise<void> {
    const { changedPorts } = this.state.applyChanges();
    await this.#sync(false, changedPorts);
  }

  /** Watching must have ended. */
  async close(): Promise<void> {
    await this.#ruleset.close();
  }

  #newBackend(restart?: RestartNote): NftablesBackend {
    return benchBackend(this.#counted(this.#ruleset.open({ family: "ip", table: TABLE })), this.#layout, restart);
  }

  #counted(nft: Nftables): Nftables {
    return {
      ...nft,
      transact: async (operations, options) => {
        this.transactions += 1;
        if (this.#isWithholding) for (const _operation of this.#noted(operations));
        else await nft.transact(this.isNoting ? this.#noted(operations) : this.#told(operations), options);
      },
    };
  }

  #told(operations: Iterable<NftOperation>): Iterable<NftOperation> {
    if (this.onTransaction === undefined) return operations;
    const all = [...operations];
    this.onTransaction(all);
    return all;
  }

  *#noted(operations: Iterable<NftOperation>): Iterable<NftOperation> {
    const noted: NftOperation[] = [];
    this.lastOperations = noted;
    for (const operation of operations) {
      // A first sync is not asked for.
      if (noted.length < MAX_NOTED) noted.push(operation);
      yield operation;
    }
  }

  async #sync(isFullSync: boolean, changedPorts: ReadonlySet<string>): Promise<void> {
    const { services, endpoints, endpointCount } = this.state;
    const input: SyncInput = {
      isFullSync,
      services,
      endpoints,
      endpointCount,
      changedPorts,
      zone: undefined,
      serviceCIDRs: ["10.96.0.0/12"],
    };
    const { failures } = await this.#backend.sync(input, this.#end.signal);
    const [failure] = failures;
    if (failure !== undefined) throw new Error(`${failure.subject} was refused: ${failure.reason}`);
  }
}
