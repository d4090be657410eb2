/** The nftables mode over the kernel of this process's network namespace, and the contents of its transactions. */

import type { LostRules } from "../src/contract/backend.ts";
import { type NetlinkRuleset, openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import type { Nftables, NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { LayoutName } from "../src/modes/nftables/layout-name.ts";
import { nftBackend, openTable } from "./backends.ts";
import { Subject } from "./subject.ts";

export class NftSubject extends Subject {
  readonly #ruleset: NetlinkRuleset;
  readonly #costs: Costs;

  constructor(endpointsEach: number, layout: LayoutName) {
    const costs = new Costs();
    const ruleset = openNetlinkRuleset({ onCommit: ({ milliseconds }) => costs.add(milliseconds) });
    super(endpointsEach, () => nftBackend(layout, costs.of(openTable(ruleset))));
    this.#ruleset = ruleset;
    this.#costs = costs;
  }

  get transactions(): number {
    return this.#costs.transactions;
  }

  /** Time that the kernel spent on transactions. */
  get kernelMs(): number {
    return this.#costs.kernelMs;
  }

  /** Watches the table as the daemon does. @returns a function that stops it. */
  async watch(onLost: (lost?: LostRules) => void): Promise<() => Promise<void>> {
    const stop = new AbortController();
    const watching = this.backend.monitor?.(onLost, stop.signal, () => {});
    // Arrives once the subscription exists. Reading the table would leave more garbage than everything measured.
    await openTable(this.#ruleset).mark();
    return async () => {
      stop.abort();
      await watching;
    };
  }

  /** @param isSent false: the work proceeds as if it were committed, which is then up to the caller. @returns the work's transactions. */
  async operationsOf(work: () => Promise<void>, isSent: boolean): Promise<readonly (readonly NftOperation[])[]> {
    const taken: (readonly NftOperation[])[] = [];
    this.#costs.noting = { taken, isSent };
    try {
      await work();
    } finally {
      this.#costs.noting = undefined;
    }
    return taken;
  }

  /** Stop watching first. */
  async close(): Promise<void> {
    await this.#ruleset.close();
  }
}

/** Of the kernel's transactions. */
class Costs {
  transactions = 0;
  kernelMs = 0;
  noting: { readonly taken: (readonly NftOperation[])[]; readonly isSent: boolean } | undefined;

  add(milliseconds: number): void {
    this.kernelMs += milliseconds;
  }

  of(nft: Nftables): Nftables {
    return {
      ...nft,
      transact: async (operations, options) => {
        this.transactions += 1;
        const { noting } = this;
        if (noting === undefined) return await nft.transact(operations, options);
        const all = [...operations];
        noting.taken.push(all);
        if (noting.isSent) await nft.transact(all, options);
      },
    };
  }
}
