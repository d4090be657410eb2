/**
 * Brings changes of several owners into the kernel when some of them will be refused and the tool may not say which
 * (`bisect.ts`). An owner that is refused keeps what it had.
 */
import type { Iptables, IptablesRestoreError } from "../../../kernel/iptables/iptables.ts";
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { bisect, type Refusal } from "../bisect.ts";
import { deltaPayload, droppedChains, type OwnerStep } from "./delta-payload.ts";
import { type InstalledRule, type InstalledRules, inTable, NO_RULES, withShared } from "./installed-rules.ts";
import { staleChainOwner, type WrittenRules } from "./payload.ts";
import { isAttributable, send } from "./restore.ts";
import type { ServicePortPlan, ServiceTable } from "./rules-plan.ts";

/** What an owner is to have. */
interface DesiredRules {
  /** Asked for each attempt: a group may have the rules of a whole cluster. */
  readonly plan: () => ServicePortPlan;
  /** What is remembered of the plan when the kernel has it. */
  readonly installed: InstalledRules;
}

/** One owner's change from what is installed to what is wanted; absent means nothing. */
export interface OwnerChange {
  readonly owner: string;
  readonly before?: InstalledRules | undefined;
  readonly after?: DesiredRules | undefined;
}

/** The change that deletes a stale chain. */
export function removalOf(chain: ChainName): OwnerChange {
  return { owner: staleChainOwner(chain), before: { ...NO_RULES, ownChains: [chain] } };
}

/** All of a change. Throws a RangeError when the plan cannot be made. */
export function stepOf({ owner, before, after }: OwnerChange): OwnerStep {
  return { owner, before, after: after?.plan() };
}

interface BisectChangesOptions {
  readonly onRefused: (error: IptablesRestoreError) => void;
  /** So many refused restores, and the rest is left as it is: it is neither accepted nor refused. @default no limit */
  readonly maxRefusals?: number;
}

interface BisectChangesResult {
  /** By owner, chains that could not be deleted included: what the tool said. */
  readonly refused: ReadonlyMap<string, string>;
  /** What the kernel holds for every owner of the changes; `undefined` is nothing. */
  readonly states: ReadonlyMap<string, InstalledRules | undefined>;
  /** Owners that are as they should be. */
  readonly accepted: readonly string[];
  readonly written: WrittenRules;
}

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
    const inFilter = await this.#apply(changes, filterStep);
    const inNat = await this.#apply(inFilter, natStep);
    const dropped = inNat.flatMap((change) => droppedChains(stepOf(change)));
    // Emptied first, since they may jump to one another.
    if (await this.#isEmptied(dropped)) await this.#apply(dropped.map(removalOf), stepOf);
    const accepted = new Set<string>();
    for (const { owner } of inNat) if (!this.#refused.has(owner)) accepted.add(owner);
    const done = new Set(inNat);
    const halfDone = inFilter.filter((change) => !done.has(change));
    if (!(await this.#isTakenBack(halfDone))) {
      for (const change of halfDone) states.set(change.owner, withNewFilter(change));
    }
    for (const { owner, after } of inNat) if (accepted.has(owner)) states.set(owner, after?.installed);
    return { refused: this.#refused, states, accepted: [...accepted], written: this.#written };
  }

  async #apply(
    changes: readonly OwnerChange[],
    step: (change: OwnerChange) => OwnerStep,
  ): Promise<readonly OwnerChange[]> {
    const { maxRefusals = Number.POSITIVE_INFINITY } = this.#options;
    return await bisect(changes, {
      attempt: (group) => this.#attempt(group, step),
      onOffender: ({ owner }, reason: string) => this.#refused.set(owner, reason),
      isGivenUp: () => this.#refusals >= maxRefusals,
    });
  }

  async #attempt(
    group: readonly OwnerChange[],
    step: (change: OwnerChange) => OwnerStep,
  ): Promise<Refusal<OwnerChange, string> | undefined> {
    try {
      const written = await send(this.#iptables, deltaPayload(group.map(step)));
      this.#written = { filter: this.#written.filter + written.filter, nat: this.#written.nat + written.nat };
      return undefined;
    } catch (error) {
      // A name that no rule can carry is as much the fault of one owner as what the kernel refuses.
      if (error instanceof RangeError) return { reason: error.message };
      if (!isAttributable(error)) throw error;
      this.#refusals += 1;
      this.#options.onRefused(error);
      return { reason: error.output };
    }
  }

  async #isEmptied(chains: readonly ChainName[]): Promise<boolean> {
    const emptied = (chain: ChainName): OwnerStep => ({
      owner: chain,
      after: { shared: [], ownChains: [chain], ownRules: [] },
    });
    try {
      await send(this.#iptables, deltaPayload(chains.map(emptied)));
      return true;
    } catch (error) {
      if (!isAttributable(error)) throw error;
      for (const chain of chains) this.#refused.set(staleChainOwner(chain), error.output);
      return false;
    }
  }

  /** Owners whose nat rules were refused get their old entries in filter again; false when that is refused, too. */
  async #isTakenBack(changes: readonly OwnerChange[]): Promise<boolean> {
    const reversed = changes.map((change): OwnerStep => {
      const { owner, before, after } = filterStep(change);
      return { owner, before: after, after: before && { ...before, ownRules: [] } };
    });
    try {
      await send(this.#iptables, deltaPayload(reversed));
      return true;
    } catch (error) {
      if (!isAttributable(error)) throw error;
      return false;
    }
  }
}

function withNewFilter({ before = NO_RULES, after }: OwnerChange): InstalledRules {
  return withShared(before, "filter", inTable(after?.plan().shared ?? [], "filter"));
}

/** The part of a change in filter. */
function filterStep(change: OwnerChange): OwnerStep {
  const { owner, before, after } = stepOf(change);
  return {
    owner,
    before: before && { shared: only(before.shared, "filter"), ownChains: [] },
    after: after && { shared: only(after.shared, "filter"), ownChains: [], ownRules: [] },
  };
}

/** The part of a change in nat, without the deletion of chains. */
function natStep(change: OwnerChange): OwnerStep {
  const { owner, before, after } = stepOf(change);
  return {
    owner,
    before: before && { shared: only(before.shared, "nat"), ownChains: [] },
    after: after && { ...after, shared: only(after.shared, "nat") },
  };
}

function only(shared: readonly InstalledRule[], table: ServiceTable): readonly InstalledRule[] {
  return shared.filter((one) => one.table === table);
}
