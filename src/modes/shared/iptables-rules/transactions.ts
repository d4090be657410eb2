/**
 * Applies payloads, and finds the offenders when one is rejected: the others are programmed, and the offenders keep
 * their last known good rules and are reported.
 */

import type { SyncFailure } from "../../../contract/backend.ts";
import { type Iptables, type IptablesRestoreError, isAttributable } from "../../../kernel/iptables/iptables.ts";
import type { SavedTable } from "../../../kernel/iptables/parser/ruleset.ts";
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import type { ServicePortName } from "../../../model/service-port-name.ts";
import { bisectChanges, removalOf } from "./bisect-changes.ts";
import type { OwnerChange } from "./delta-payload.ts";
import { fullPayload } from "./full-payload.ts";
import { declaredChains, NO_RULES, type OwnerRules, remembered, type SpelledRules } from "./owner-rules.ts";
import {
  addWritten,
  ownerOfLine,
  type Payload,
  send,
  staleChainOf,
  staleChainOwner,
  type Transaction,
  textsOf,
  type WrittenRules,
} from "./payload.ts";
import type { ServiceTable, StaticPlan } from "./rules-plan.ts";
import { readSavedIfReadable, SavedRules } from "./saved-rules.ts";

/** How many offenders that the tool names are excluded one by one before bisection takes over. */
const MAX_NAMED_OFFENDERS = 8;

/** The owner of the static rules in failures. */
export const STATIC_RULES = "rules that belong to no service";

/** A port that a full transaction programs. */
export interface DesiredPort {
  readonly name: ServicePortName;
  readonly rules: SpelledRules;
}

/** A port that could not be planned; its last known good rules are kept. */
export interface UnplannedPort {
  readonly name: ServicePortName;
  readonly reason: string;
}

/** The kernel's state after a transaction that may have been accepted only in part. */
interface TransactionResult {
  /** By owner. */
  readonly failures: Map<string, SyncFailure>;
  /** By owner; owners that failed have what they kept, or nothing. */
  readonly installed: Map<string, OwnerRules>;
  readonly written: WrittenRules;
}

/** The input of {@link applyFull}. */
export interface FullTransaction {
  readonly plan: StaticPlan;
  /** In the order of their rules in shared chains. */
  readonly ports: ReadonlyMap<string, DesiredPort>;
  readonly unplanned: ReadonlyMap<string, UnplannedPort>;
  /** Existing nat chains of ours that no port of this transaction owns. */
  readonly staleChains: readonly ChainName[];
  /**
   * The previous table filter, if it could be read, for finding last known good rules. nat is read when needed: after its
   * shared chains are rewritten, only stale chains can be refused.
   */
  readonly savedFilter: SavedTable | undefined;
  /**
   * What owners had before a failed change that may be in force in filter: their entries there are the last known good
   * ones, and override `savedFilter`. @default no change has failed
   */
  readonly before: ReadonlyMap<string, OwnerRules> | undefined;
  /** As in {@link fullPayload}. */
  readonly portsPerTransaction?: number;
  readonly onRefused: (error: IptablesRestoreError) => void;
}

/**
 * Rewrites all our rules. If the kernel rejects them, leaves out the owners that the tool names, and bisects if it
 * names none. Rejects with the tool's error if nothing is accepted, the lock is held, or the tool is missing: each
 * table is then as it was.
 */
export async function applyFull(iptables: Iptables, full: FullTransaction): Promise<TransactionResult> {
  const attempt = new FullAttempt(iptables, full);
  for (const [owner, { name, reason }] of full.unplanned) await attempt.exclude(owner, name, reason);
  for (let round = 0; ; round += 1) {
    try {
      return await attempt.run();
    } catch (error) {
      if (!isAttributable(error)) throw error;
      full.onRefused(error);
      const isNamed = round < MAX_NAMED_OFFENDERS && (await attempt.excludeNamed(error));
      if (!isNamed) return await attempt.bisect(error);
    }
  }
}

/** The state of a full transaction across its attempts. */
class FullAttempt {
  readonly #iptables: Iptables;
  readonly #full: FullTransaction;
  readonly #failures = new Map<string, SyncFailure>();
  /** What owners have that this transaction leaves out, or does not change at first. */
  readonly #kept = new Map<string, OwnerRules>();
  #saved: SavedRules | undefined;
  #savedFilter: SavedTable | undefined;
  #before: FullTransaction["before"];
  #payload: Payload | undefined;

  constructor(iptables: Iptables, full: FullTransaction) {
    this.#iptables = iptables;
    this.#full = full;
    this.#savedFilter = full.savedFilter;
    this.#before = full.before;
  }

  async run(): Promise<TransactionResult> {
    const { portsPerTransaction } = this.#full;
    const ports = [...this.#full.ports].filter(([owner]) => !this.#failures.has(owner));
    this.#payload = fullPayload({
      plan: this.#full.plan,
      ports: ports.map(([owner, { rules }]) => [owner, rules]),
      kept: this.#kept,
      staleChains: this.#staleChains(),
      heldChains: [...this.#failures.keys()].flatMap((owner) => staleChainOf(owner) ?? []),
      ...(portsPerTransaction !== undefined && { portsPerTransaction }),
    });
    const written = await send(this.#iptables, this.#payload);
    const installed = new Map(this.#kept);
    for (const [owner, { rules }] of ports) installed.set(owner, remembered(rules));
    return { failures: this.#failures, installed, written };
  }

  /** Leaves an owner out of later attempts; its last known good rules stay. */
  async exclude(owner: string, name: ServicePortName | undefined, reason: string): Promise<void> {
    this.#failures.set(owner, { subject: name?.text ?? owner, reason });
    const rules = name && (await this.#lastGood(owner, name));
    if (rules !== undefined) this.#kept.set(owner, rules);
  }

  /** Excludes the owner of the line in the tool's error; false if there is no new owner. */
  async excludeNamed(error: IptablesRestoreError): Promise<boolean> {
    const owner = this.#payload && ownerOfLine(this.#payload, error.line);
    if (owner === undefined || this.#failures.has(owner)) return false;
    await this.exclude(owner, this.#full.ports.get(owner)?.name, error.output);
    return true;
  }

  /**
   * Rewrites only the static rules first, then applies the owners' changes, bisecting every rejected group. Rejects
   * with the original error if nothing at all is accepted: then no single owner caused it.
   */
  async bisect(original: IptablesRestoreError): Promise<TransactionResult> {
    const fixed = await this.#rewriteStaticRules();
    // A rejected table holds what an earlier attempt left there.
    if (fixed.refused) {
      this.#saved = undefined;
      this.#before = undefined;
    }
    const saved = await this.#savedRules();
    const changes: OwnerChange[] = [];
    for (const [owner, { name, rules }] of this.#full.ports) {
      const before = await this.#lastGood(owner, name);
      if (this.#failures.has(owner)) continue;
      if (before !== undefined) this.#kept.set(owner, before);
      changes.push({ owner, before, after: rules });
    }
    // New entries go to the head of a chain, so the last owner is applied first.
    changes.reverse();
    if (fixed.refused) {
      for (const { name } of this.#full.unplanned.values()) saved.of(name);
      for (const [owner, before] of saved.rest()) changes.push({ owner, before });
    }
    for (const chain of this.#staleChains()) changes.push(removalOf(chain));
    const { onRefused } = this.#full;
    const { accepted, refused, states, written } = await bisectChanges(this.#iptables, changes, { onRefused });
    if (fixed.refused) {
      if (fixed.filter + fixed.nat + accepted.length === 0) throw original;
      this.#failures.set(STATIC_RULES, { subject: STATIC_RULES, reason: original.output, concernsAll: true });
    }
    for (const [owner, reason] of refused) {
      this.#failures.set(owner, { subject: this.#full.ports.get(owner)?.name.text ?? owner, reason });
    }
    const installed = new Map(this.#kept);
    for (const [owner, rules] of states) {
      if (rules !== undefined && this.#full.ports.has(owner)) installed.set(owner, rules);
    }
    return { failures: this.#failures, installed, written: addWritten(fixed, written) };
  }

  /** Rewrites the static rules table by table, leaving everything else as it is. Resolves to the rules written. */
  async #rewriteStaticRules(): Promise<WrittenRules & { readonly refused: boolean }> {
    const kept = new Map(this.#kept);
    for (const [owner, { name }] of this.#full.ports) {
      const rules = this.#failures.has(owner) ? undefined : await this.#lastGood(owner, name);
      if (rules !== undefined) kept.set(owner, rules);
    }
    const { transactions, written } = fullPayload({ plan: this.#full.plan, ports: [], kept });
    const isFilterDone = await this.#isAccepted(transactions.filter(({ table }) => table === "filter"));
    const isNatDone = await this.#isAccepted(transactions.filter(({ table }) => table === "nat"));
    return {
      filter: isFilterDone ? written.filter : 0,
      nat: isNatDone ? written.nat : 0,
      refused: !isFilterDone || !isNatDone,
    };
  }

  async #isAccepted(transactions: readonly Transaction[]): Promise<boolean> {
    try {
      await this.#iptables.restore(textsOf(transactions));
      return true;
    } catch (error) {
      if (!isAttributable(error)) throw error;
      this.#full.onRefused(error);
      return false;
    }
  }

  #staleChains(): ChainName[] {
    const needed = new Set<string>();
    for (const { ownChains } of this.#kept.values()) for (const chain of declaredChains(ownChains)) needed.add(chain);
    return this.#full.staleChains.filter((chain) => !needed.has(chain) && !this.#failures.has(staleChainOwner(chain)));
  }

  async #lastGood(owner: string, name: ServicePortName): Promise<OwnerRules | undefined> {
    const found = (await this.#savedRules()).of(name);
    return this.#before === undefined
      ? found
      : { ...NO_RULES, ...found, filter: this.#before.get(owner)?.filter ?? "" };
  }

  async #savedRules(): Promise<SavedRules> {
    if (this.#saved !== undefined) return this.#saved;
    const read = async (table: ServiceTable) => (await readSavedIfReadable(this.#iptables, table)) ?? new Map();
    const filter = this.#savedFilter ?? (await read("filter"));
    // Valid only for the first read.
    this.#savedFilter = undefined;
    this.#saved = new SavedRules(filter, await read("nat"), this.#full.plan);
    return this.#saved;
  }
}
