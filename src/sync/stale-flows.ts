/**
 * Ends the flows that conntrack still sends to endpoints which no longer serve, and those of frontends that are gone: reference sync.md
 * §13.2, driven over the connection tracking table. What is stale is decided in `model/stale-flows.ts`.
 */

import type { Clock } from "../async/clock.ts";
import type { Mutex } from "../async/mutex.ts";
import { giveTurn, isTurnDue } from "../async/turns.ts";
import type { ConntrackTable } from "../kernel/conntrack/conntrack.ts";
import type { LocalAddresses } from "../kernel/route/addresses.ts";
import type { Logger } from "../logging/logger.ts";
import { ENDED_PROTOCOLS, type Served, staleFlowTest } from "../model/stale-flows.ts";
import type { Flow } from "../net/flow.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import { type Protocol, protocolName } from "../net/protocol.ts";
import { formatMs } from "../text/duration.ts";
import type { SyncMetrics } from "./observers.ts";
import { union } from "./pending-work.ts";

/** Part of `ProxyState`. */
export interface ServedFlows extends Served {
  portCount(protocol: Protocol): number;
}

interface CleanedFlows {
  /** Flows that are gone now, those that ended by themselves meanwhile included. */
  readonly deleted: number;
  /** Why flows could not be deleted, one entry for each. */
  readonly errors: readonly unknown[];
  /** Whether the whole table was read, and not what there was when it changed too often meanwhile. */
  readonly isWhole: boolean;
}

interface CleaningOptions {
  readonly table: ConntrackTable;
  readonly family: IpFamily;
  /** What the rules that are in the kernel now were made of, whenever it is this work's turn. */
  readonly served: ServedFlows;
  /** Frontends that service ports do not own any more, as `frontendKey` writes them. */
  readonly gone: ReadonlySet<string>;
  /** Addresses of the node; empty: not known. */
  readonly own: ReadonlySet<IpAddress>;
  /** Held by a sync, between whose steps the model is of no use. */
  readonly turns: Pick<Mutex, "run">;
  /** Ends the work between two deletions. */
  readonly signal: AbortSignal;
}

/**
 * Looks through the table and deletes the stale flows, while syncs go on. Rejects when the table cannot be read; a flow that cannot be
 * deleted does not keep the others. Where no flow could be stale, the table is not even read.
 */
export async function deleteStaleFlows(options: CleaningOptions): Promise<CleanedFlows> {
  const { table, family, served, gone, own, turns, signal } = options;
  const suspects: Flow[] = [];
  let isWhole = true;
  for (const protocol of ENDED_PROTOCOLS) {
    const prefix = `${protocolName(protocol)} `;
    if (served.portCount(protocol) === 0 && ![...gone].some((frontend) => frontend.startsWith(prefix))) continue;
    const before = suspects.length;
    const isRead = await table.readFlows(family, { protocol }, () => {
      suspects.length = before;
      const isStale = staleFlowTest(served, gone, own);
      return (flow) => {
        if (isStale(flow)) suspects.push(flow);
      };
    });
    isWhole &&= isRead;
  }
  const errors: unknown[] = [];
  if (suspects.length === 0) return { deleted: 0, errors, isWhole };
  const stale = await turns.run(async () => suspects.filter(staleFlowTest(served, gone, own)));
  let deleted = 0;
  for (const flow of stale) {
    if (signal.aborted) break;
    try {
      await table.deleteFlow(family, flow);
      deleted++;
    } catch (error) {
      errors.push(error);
    }
    if (isTurnDue()) await giveTurn();
  }
  return { deleted, errors, isWhole };
}

interface StaleFlowsOptions {
  readonly metrics: Pick<SyncMetrics, "observeConntrackCleanup">;
  readonly conntrack: ConntrackTable;
  /** @default none is known */
  readonly localAddresses?: LocalAddresses;
  readonly clock: Clock;
  readonly log: Logger;
  readonly family: IpFamily;
  /** The model of the family; live. */
  readonly state: ServedFlows;
  readonly turns: Pick<Mutex, "run">;
  readonly signal: AbortSignal;
}

/** After a look that was not whole, or was refused for the first time. */
const RETRY_MS = 1000;

/** As status and page name it where it cannot be done. */
const ENDING_FLOWS = "ending UDP flows to endpoints that are gone";

/** Looks for stale flows, one look after the other, beside the syncs that ask for it. */
export class StaleFlows {
  readonly #options: StaleFlowsOptions;
  #gone: ReadonlySet<string> = new Set();
  #isDue = false;
  #looking: Promise<void> | undefined;
  #isRefused = false;

  constructor(options: StaleFlowsOptions) {
    this.#options = options;
  }

  /** Settled when nothing is being looked for; never rejects. */
  get settled(): Promise<void> {
    return this.#looking ?? Promise.resolve();
  }

  /** To be called when rules are in the kernel. @param gone frontends without their owner. */
  look(gone: ReadonlySet<string>): void {
    this.#gone = union(this.#gone, gone);
    this.#isDue = true;
    this.#looking ??= this.#run();
  }

  async #run(): Promise<void> {
    const { clock, log, signal } = this.#options;
    while (this.#isDue && !signal.aborted) {
      let isAgain = true;
      const gone = this.#gone;
      this.#gone = new Set();
      this.#isDue = false;
      try {
        const wasRefused = this.#isRefused;
        const { isWhole, failed } = await this.#clean(gone);
        if (isWhole && failed === 0) continue;
        isAgain = failed === 0 || !wasRefused;
      } catch (error) {
        const cannot = ENDING_FLOWS;
        log.error("Stale flows were not looked for: conntrack could not be read", error, { cannot });
        const wasRefused = this.#isRefused;
        this.#isRefused = true;
        // What is refused once may be chance. Later it waits for the next change.
        isAgain = !wasRefused;
      }
      this.#gone = union(this.#gone, gone);
      if (!isAgain) continue;
      this.#isDue = true;
      await clock.sleep(RETRY_MS, signal);
    }
    // In the same breath as the last look at what is due.
    this.#looking = undefined;
  }

  async #clean(gone: ReadonlySet<string>): Promise<{ readonly isWhole: boolean; readonly failed: number }> {
    const { clock, conntrack, metrics, family, state, turns, signal, log } = this.#options;
    const startMs = clock.monotonicMs();
    const own = await this.#ownAddresses();
    const { deleted, errors, isWhole } = await deleteStaleFlows({
      ...{ table: conntrack, family, served: state, gone, own, turns, signal },
    });
    const elapsedMs = clock.monotonicMs() - startMs;
    metrics.observeConntrackCleanup(elapsedMs / 1000, deleted);
    if (errors.length > 0) {
      const cannot = ENDING_FLOWS;
      log.error("Some stale flows could not be deleted", errors[0], { failed: errors.length, deleted, cannot });
      this.#isRefused = true;
    } else if (this.#isRefused) {
      log.info("Stale flows are deleted again", { can: ENDING_FLOWS });
      this.#isRefused = false;
    }
    log.v(4, "Finished reconciling conntrack entries", { deleted, took: formatMs(elapsedMs) });
    return { isWhole, failed: errors.length };
  }

  async #ownAddresses(): Promise<ReadonlySet<IpAddress>> {
    const { localAddresses, family, signal, log } = this.#options;
    try {
      return new Set(await localAddresses?.(family, signal));
    } catch (error) {
      log.error("Flows to node ports may stay: the addresses of the node are not known", error);
      return new Set();
    }
  }
}
