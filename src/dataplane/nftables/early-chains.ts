/**
 * Chains of service ports that are made while the lists of the cluster still arrive, where there is no table yet: in a large cluster
 * the kernel takes longer for them than the lists take to come. Nothing leads to them until the first sync, which takes over what is
 * there and changes what has become different meanwhile.
 */

import type { Nftables, NftMark, NftTableContent } from "../../kernel/nftables/nftables.ts";
import { isDeepStrictEqual } from "../../kernel/node-util.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { SyncInput } from "../../sync/backend.ts";
import type { PlanFacts } from "./plan-options.ts";
import { type DesiredPort, desiredPort, type PlanPort } from "./port-objects.ts";
import { Preparation, type PreparationOptions } from "./preparation.ts";
import type { StaticPlan } from "./table-plan.ts";

export interface EarlyChainsOptions extends Pick<PreparationOptions, "commit" | "portsAtOnce"> {
  readonly nft: Nftables;
  readonly facts: PlanFacts;
  /** In view of the facts. */
  readonly plan: PlanPort;
  readonly planStatic: StaticPlan;
}

/** What the table will hold when the kernel has taken all of it, as far as no other program has changed anything since the mark. */
export interface EarlyContent {
  readonly mark: NftMark;
  /** Its generation is that of the mark. */
  readonly content: NftTableContent;
  /** Whether the kernel has taken all. Resolves when it has dealt with the last; never rejects. */
  isTaken(): Promise<boolean>;
}

type Turns = Pick<PreparationOptions, "yielder" | "signal">;

interface PlannedPort {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
  readonly desired: DesiredPort;
}

const NO_ENDPOINTS: readonly Endpoint[] = [];

export class EarlyChains {
  readonly #options: EarlyChainsOptions;
  readonly #mark: NftMark;
  readonly #preparation: Preparation;
  readonly #planned = new Map<string, PlannedPort>();
  /** Not made yet. */
  readonly #waiting: [string, DesiredPort][] = [];
  #making: Promise<void> | undefined;
  #isWhole = true;

  /** @returns undefined when there is a table: what it has is compared first. */
  static async begin(options: EarlyChainsOptions): Promise<EarlyChains | undefined> {
    const mark = await options.nft.mark();
    return (await options.nft.exists()) ? undefined : new EarlyChains(options, mark);
  }

  private constructor(options: EarlyChainsOptions, mark: NftMark) {
    this.#options = options;
    this.#mark = mark;
    this.#preparation = new Preparation(undefined, options.planStatic, options);
  }

  /**
   * Plans those among the changed service ports that have endpoints and were not seen before, and has their chains made: that goes on
   * by itself. Rejects when the signal aborts.
   */
  async add({ changedPorts, services, endpoints: allEndpoints }: SyncInput, options: Turns): Promise<void> {
    const { yielder, signal } = options;
    for (const key of changedPorts) {
      const port = services.get(key);
      const endpoints = allEndpoints.get(key);
      if (port === undefined || endpoints === undefined || this.#planned.has(key)) continue;
      const desired = desiredPort(this.#options.plan, port, endpoints);
      this.#planned.set(key, { port, endpoints, desired });
      if (desired.chainObjects.length > 0) {
        this.#preparation.expect(key, desired);
        this.#waiting.push([key, desired]);
      }
      if (yielder.isDue()) await yielder.turn(signal);
    }
    if (this.#waiting.length > 0) this.#making ??= this.#make(options);
  }

  async #make(options: Turns): Promise<void> {
    try {
      while (this.#waiting.length > 0) await this.#preparation.add(this.#waiting.splice(0), options);
    } catch {
      // The sync will meet it, too, if it is still so.
      this.#isWhole = false;
    } finally {
      this.#making = undefined;
    }
  }

  /** The plan of a service port, where it was planned of just this. */
  planned(key: string, port: ServicePort, endpoints: readonly Endpoint[] = NO_ENDPOINTS): DesiredPort | undefined {
    const known = this.#planned.get(key);
    return known?.port === port && known.endpoints === endpoints ? known.desired : undefined;
  }

  /** Whether plans in view of these facts would be the same. */
  suits(facts: PlanFacts): boolean {
    return isDeepStrictEqual(facts, this.#options.facts);
  }

  /**
   * What is to be in the table, which much of may still be on its way to the kernel: what follows is worked out meanwhile. Never rejects.
   * @returns undefined when there is nothing, or when it is known that not all was taken; then nothing is under way any more.
   */
  async content(): Promise<EarlyContent | undefined> {
    const { chains, sets } = this.#preparation.made;
    if (!this.#isAll || chains.size === 0) {
      await this.end();
      return undefined;
    }
    const { generation } = this.#mark;
    return {
      mark: this.#mark,
      content: { generation, isDormant: false, hasOtherFlags: false, chains, sets },
      isTaken: async () => {
        await this.end();
        return this.#isAll;
      },
    };
  }

  /** Waits until nothing is under way any more; never rejects. */
  async end(): Promise<void> {
    await this.#making;
    await this.#preparation.settled();
  }

  /** As far as it is known. */
  get #isAll(): boolean {
    return this.#isWhole && this.#preparation.made.isAll;
  }
}
