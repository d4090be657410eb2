/**
 * Ends conntrack flows to endpoints that no longer serve, and those of frontends that are gone: reference sync.md
 * §13.2, applied to the connection tracking table. `model/stale-flows.ts` decides what is stale.
 */

import { SharedTurns } from "../../async/bounded-runner.ts";
import type { Clock } from "../../async/clock.ts";
import type { Mutex } from "../../async/mutex.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { SyncMetrics } from "../../contract/observers.ts";
import type { ConntrackTable } from "../../kernel/conntrack/conntrack.ts";
import type { LocalAddresses } from "../../kernel/route/addresses.ts";
import type { Logger } from "../../logging/logger.ts";
import { ENDED_PROTOCOLS, type Served, staleFlowTest } from "../../model/stale-flows.ts";
import type { Flow } from "../../net/flow.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { type Protocol, protocolName } from "../../net/protocol.ts";
import { formatMs } from "../../text/duration.ts";
import { union } from "./pending-work.ts";

/** Part of `ProxyState`. */
export interface ServedFlows extends Served {
  portCount(protocol: Protocol): number;
}

/** What it takes to end flows of a family. */
interface FlowsOptions<State> {
  readonly conntrack: ConntrackTable;
  readonly family: IpFamily;
  /** What the rules now in the kernel were made from, while this work holds `turns`; live. */
  readonly state: State;
  /** Held by a sync, between whose steps the model is unusable. */
  readonly turns: Pick<Mutex, "run">;
  /** Aborts the work between two deletions. */
  readonly signal: AbortSignal;
}

/** What it takes to look repeatedly. */
export interface LookOptions<State> extends FlowsOptions<State> {
  /** @default none is known */
  readonly localAddresses?: LocalAddresses;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Looks through the table and deletes stale flows, while syncs continue. Rejects if the table cannot be read; a flow
 * that cannot be deleted does not hold up the others. Does not even read the table if no flow could be stale.
 *
 * @param gone frontends that no service port owns any more, as `frontendKey` writes them.
 * @param own addresses of the node; empty: unknown.
 */
export async function deleteStaleFlows(
  { conntrack, family, state, turns, signal }: FlowsOptions<ServedFlows>,
  gone: ReadonlySet<string>,
  own: ReadonlySet<IpAddress>,
): Promise<{
  /** Flows that are gone now, including those that ended by themselves meanwhile. */
  readonly deleted: number;
  /** Why flows could not be deleted, one entry each. */
  readonly errors: readonly unknown[];
  /** Whether the whole table was read; false if it changed too often meanwhile. */
  readonly isWhole: boolean;
}> {
  const suspects: Flow[] = [];
  let isWhole = true;
  for (const protocol of ENDED_PROTOCOLS) {
    const prefix = `${protocolName(protocol)} `;
    if (state.portCount(protocol) === 0 && ![...gone].some((frontend) => frontend.startsWith(prefix))) continue;
    const before = suspects.length;
    const isRead = await conntrack.readFlows(family, { protocol }, () => {
      suspects.length = before;
      const isStale = staleFlowTest(state, gone, own);
      return (flow) => {
        if (isStale(flow)) suspects.push(flow);
      };
    });
    isWhole &&= isRead;
  }
  const errors: unknown[] = [];
  if (suspects.length === 0) return { deleted: 0, errors, isWhole };
  const stale = await turns.run(async () => suspects.filter(staleFlowTest(state, gone, own)));
  let deleted = 0;
  for (const flow of stale) {
    if (signal.aborted) break;
    try {
      await conntrack.deleteFlow(family, flow);
      deleted++;
    } catch (error) {
      errors.push(error);
    }
    if (isTurnDue()) await giveTurn();
  }
  return { deleted, errors, isWhole };
}

interface StaleFlowsOptions extends LookOptions<ServedFlows> {
  readonly metrics: Pick<SyncMetrics, "observeConntrackCleanup">;
}

/** Delay after a partial look, or the first failure. */
const RETRY_MS = 1000;

/** How status and page name it while it does not work. */
const ENDING_FLOWS = "ending UDP flows to endpoints that are gone";

/** Looks for stale flows, one look at a time, alongside the syncs that request it. */
export class StaleFlows {
  readonly #options: StaleFlowsOptions;
  #gone: ReadonlySet<string> = new Set();
  readonly #looks = new SharedTurns(() => this.#look());
  #isRefused = false;

  constructor(options: StaleFlowsOptions) {
    this.#options = options;
  }

  /** Settles when no look is running; never rejects. */
  get settled(): Promise<void> {
    return this.#looks.idle();
  }

  /** Call when rules are in the kernel. @param gone frontends without an owner. */
  look(gone: ReadonlySet<string>): void {
    this.#gone = union(this.#gone, gone);
    void this.#looks.take();
  }

  async #look(): Promise<void> {
    const { clock, signal } = this.#options;
    if (signal.aborted) return;
    const gone = this.#gone;
    this.#gone = new Set();
    const rest = await this.#clean(gone);
    if (rest === "none") return;
    this.#gone = union(this.#gone, gone);
    if (rest === "later") return;
    await clock.sleep(RETRY_MS, signal);
    void this.#looks.take();
  }

  /** @returns when to look for what may be left; `later`: with the next change. */
  async #clean(gone: ReadonlySet<string>): Promise<"none" | "soon" | "later"> {
    const { clock, metrics, log } = this.#options;
    const startMs = clock.monotonicMs();
    const wasRefused = this.#isRefused;
    try {
      const own = await this.#ownAddresses();
      const { deleted, errors, isWhole } = await deleteStaleFlows(this.#options, gone, own);
      const elapsedMs = clock.monotonicMs() - startMs;
      metrics.observeConntrackCleanup(elapsedMs / 1000, deleted);
      this.#isRefused = errors.length > 0;
      if (this.#isRefused) {
        const facts = { failed: errors.length, deleted, cannot: ENDING_FLOWS };
        log.error("Some stale flows could not be deleted", errors[0], facts);
      } else if (wasRefused) log.info("Stale flows are deleted again", { can: ENDING_FLOWS });
      log.v(4, "Finished reconciling conntrack entries", { deleted, took: formatMs(elapsedMs) });
      if (!this.#isRefused) return isWhole ? "none" : "soon";
    } catch (error) {
      const cannot = ENDING_FLOWS;
      log.error("Failed to look for stale flows: conntrack cannot be read", error, { cannot });
      this.#isRefused = true;
    }
    // A single failure may be chance.
    return wasRefused ? "later" : "soon";
  }

  async #ownAddresses(): Promise<ReadonlySet<IpAddress>> {
    const { localAddresses, family, signal, log } = this.#options;
    try {
      return new Set(await localAddresses?.(family, signal));
    } catch (error) {
      log.error("Flows to node ports may stay: the node's addresses are unknown", error);
      return new Set();
    }
  }
}
