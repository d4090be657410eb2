/**
 * Brings changes of several owners into the kernel when some of them will be refused and the tool may not say which
 * (`bisect.ts`). An owner that is refused keeps what it had.
 */
import type { Iptables, IptablesRestoreError } from "../../../kernel/iptables/iptables.ts";
import { bisect, type Refusal } from "../bisect.ts";
import { deltaPayload, type OwnerChange, removalOf, staleChainOwner, type WrittenRules } from "./payload.ts";
import { type InstalledRules, installed, listOf } from "./port-rules.ts";
import { isAttributable, send } from "./restore.ts";
import { NO_RULES } from "./saved-rules.ts";

export interface BisectChangesOptions {
  readonly onRefused: (error: IptablesRestoreError) => void;
  /** So many refused restores, and the rest is left as it is: it is neither accepted nor refused. @default no limit */
  readonly maxRefusals?: number;
}

export interface BisectChangesResult {
  /** By owner, chains that could not be deleted included: what the tool said. */
  readonly refused: ReadonlyMap<string, string>;
  /** What the kernel holds for every owner of the changes; `undefined` is nothing. */
  readonly states: ReadonlyMap<string, InstalledRules | undefined>;
  /** Owners that are as they should be. */
  readonly accepted: readonly string[];
  readonly written: WrittenRules;
}

type Step = "filter" | "nat" | "chains";

/** Applies what the kernel accepts. Rejects when the reason is no rule (lock, missing tool), somewhere on the way. */
export async function bisectChanges(
  iptables: Iptables,
  changes: readonly OwnerChange[],
  options: BisectChangesOptions,
): Promise<BisectChangesResult> {
  return await new ChangeBisection(iptables, options).run(changes);
}

class ChangeBisection {
  readonly #iptables: Iptables;
  readonly #options: BisectChangesOptions;
  readonly #refused = new Map<string, string>();
  #refusals = 0;
  #written: WrittenRules = { filter: 0, nat: 0 };

  constructor(iptables: Iptables, options: BisectChangesOptions) {
    this.#iptables = iptables;
    this.#options = options;
  }

  /**
   * One table after the other: of a payload with both, the first would stay in force when the second is refused. Chains
   * that are not needed any more go last and by themselves: one that cannot be deleted is no reason to leave its owner out.
   */
  async run(changes: readonly OwnerChange[]): Promise<BisectChangesResult> {
    const states = new Map(changes.map(({ owner, before }) => [owner, before]));
    const inFilter = await this.#apply(changes, "filter");
    const inNat = await this.#apply(inFilter, "nat");
    const dropped = inNat.flatMap(droppedChains);
    // Emptied first, since they may jump to one another.
    if (await this.#isEmptied(dropped)) await this.#apply(dropped.map(removalOf), "chains");
    const accepted = new Set<string>();
    for (const { owner } of inNat) if (!this.#refused.has(owner)) accepted.add(owner);
    const done = new Set(inNat);
    const halfDone = inFilter.filter((change) => !done.has(change));
    if (!(await this.#takeBackFilter(halfDone))) {
      for (const change of halfDone) states.set(change.owner, withNewFilter(change));
    }
    for (const { owner, after } of inNat) {
      if (accepted.has(owner)) states.set(owner, after === undefined ? undefined : installed(after));
    }
    return { refused: this.#refused, states, accepted: [...accepted], written: this.#written };
  }

  async #apply(changes: readonly OwnerChange[], step: Step): Promise<readonly OwnerChange[]> {
    const { maxRefusals = Number.POSITIVE_INFINITY } = this.#options;
    return await bisect(changes, {
      attempt: (group) => this.#attempt(group, step),
      onOffender: ({ owner }, reason: string) => this.#refused.set(owner, reason),
      isGivenUp: () => this.#refusals >= maxRefusals,
    });
  }

  async #attempt(group: readonly OwnerChange[], step: Step): Promise<Refusal<OwnerChange, string> | undefined> {
    try {
      const written = await send(this.#iptables, deltaPayload(group.map((change) => partOf(change, step))));
      this.#written = { filter: this.#written.filter + written.filter, nat: this.#written.nat + written.nat };
      return undefined;
    } catch (error) {
      if (!isAttributable(error)) throw error;
      this.#refusals += 1;
      this.#options.onRefused(error);
      return { reason: error.output };
    }
  }

  async #isEmptied(chains: readonly string[]): Promise<boolean> {
    const empty = (chain: string): OwnerChange => ({
      owner: chain,
      after: { ...NO_RULES, ownChains: chain, ownText: "" },
    });
    try {
      await send(this.#iptables, deltaPayload(chains.map(empty)));
      return true;
    } catch (error) {
      if (!isAttributable(error)) throw error;
      for (const chain of chains) this.#refused.set(staleChainOwner(chain), error.output);
      return false;
    }
  }

  /** Owners whose nat rules were refused get their old entries in filter again; false when that is refused, too. */
  async #takeBackFilter(changes: readonly OwnerChange[]): Promise<boolean> {
    const reversed = changes.map(
      ({ owner, before, after }): OwnerChange => ({
        owner,
        before: { ...NO_RULES, filterShared: after?.filterShared ?? "" },
        after: { ...NO_RULES, ownText: "", filterShared: before?.filterShared ?? "" },
      }),
    );
    try {
      await send(this.#iptables, deltaPayload(reversed));
      return true;
    } catch (error) {
      if (!isAttributable(error)) throw error;
      return false;
    }
  }
}

function withNewFilter({ before, after }: OwnerChange): InstalledRules {
  return { ...(before ?? NO_RULES), filterShared: after?.filterShared ?? "" };
}

function droppedChains({ before, after }: OwnerChange): string[] {
  const kept = new Set(listOf(after?.ownChains ?? ""));
  return listOf(before?.ownChains ?? "").filter((chain) => !kept.has(chain));
}

/** The part of a change that one step makes. */
function partOf(change: OwnerChange, step: Step): OwnerChange {
  if (step === "chains") return change;
  const { owner, before, after } = change;
  const others = step === "nat" ? { filterShared: "" } : { natShared: "", ownRuleCount: 0 };
  return {
    owner,
    ...(before !== undefined && { before: { ...before, ...others, ownChains: "" } }),
    ...(after !== undefined && {
      after: { ...after, ...others, ...(step === "filter" && { ownChains: "", ownText: "" }) },
    }),
  };
}
