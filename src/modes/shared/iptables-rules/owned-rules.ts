/**
 * The rules of service ports in the kernel: what each has there, which were rejected and keep their last known good
 * ones, and whether memory can be trusted. A change is sent as a difference; if that fails, everything is written.
 */

import type { SyncFailure } from "../../../contract/backend.ts";
import { type Iptables, IptablesRestoreError, isAttributable } from "../../../kernel/iptables/iptables.ts";
import type { Logger } from "../../../logging/logger.ts";
import type { RestoreMetrics } from "../iptables-metrics.ts";
import { RefusedPorts } from "../refused-ports.ts";
import { bisectChanges, removalOf } from "./bisect-changes.ts";
import { deltaPayload, type OwnerChange } from "./delta-payload.ts";
import { countByChain, declaredChains, lineCount, type OwnerRules, remembered } from "./owner-rules.ts";
import { addWritten, send, staleChainOf, type WrittenRules } from "./payload.ts";
import { NOTHING_STATIC, type ServiceTable, type StaticPlan } from "./rules-plan.ts";
import { applyFull, type DesiredPort, type FullTransaction, STATIC_RULES, type UnplannedPort } from "./transactions.ts";

interface OwnedRulesOptions {
  readonly iptables: Iptables;
  readonly metrics: RestoreMetrics & {
    /** Counts failed restores of changes. @default not counted */
    readonly partialRestoreFailures?: { inc(): void };
  };
  readonly log: Logger;
}

/** The most rejected restores in one change while it retries rejected parts. */
const MAX_REFUSALS = 32;

export class OwnedRules {
  readonly #options: OwnedRulesOptions;
  readonly #installed = new InstalledRules();
  readonly #refused = new RefusedPorts();
  #plan: StaticPlan | undefined;
  /** A change has failed, and may be in force in filter, which precedes nat: only this process knows what was there. */
  #isHalfway = false;

  constructor(options: OwnedRulesOptions) {
    this.#options = options;
  }

  /** The static rules in the kernel; undefined if the kernel is not known to match memory. */
  get plan(): StaticPlan | undefined {
    return this.#plan;
  }

  get installed(): ReadonlyMap<string, OwnerRules> & Pick<InstalledRules, "chains" | "ruleCounts"> {
    return this.#installed;
  }

  /** What the kernel rejected, by owner. */
  get failures(): ReadonlyMap<string, SyncFailure> {
    return this.#refused;
  }

  /** Makes the next sync write everything. */
  forget(): void {
    this.#plan = undefined;
  }

  /**
   * Sends only the changed owners, and retries the rejected ones.
   *
   * @param desired what an owner should have from now on. @param ownersPerTransaction as in {@link deltaPayload}.
   * @returns undefined if everything must be written.
   */
  async change(
    changed: Iterable<string>,
    desired: (owner: string) => DesiredPort | UnplannedPort | undefined,
    ownersPerTransaction?: number,
  ): Promise<WrittenRules | undefined> {
    const { iptables, metrics, log } = this.#options;
    // Rejected parts may include some that no change requested.
    const owners = new Set([...changed, ...this.#refused.keys()]);
    const changes = [...owners].flatMap((owner) => this.#changeOf(owner, desired(owner)) ?? []);
    this.#leaveOwnedAgain(changes);
    const others = changes.filter(({ owner }) => !this.#refused.has(owner));
    try {
      const written = await send(iptables, deltaPayload(others, ownersPerTransaction));
      for (const { owner, after } of others) this.#installed.put(owner, after && remembered(after));
      return await this.#tryRefusedAgain(changes, written);
    } catch (error) {
      this.#plan = undefined;
      this.#isHalfway = true;
      metrics.restoreFailures.inc();
      metrics.partialRestoreFailures?.inc();
      if (!isAttributable(error)) throw error;
      log.error("Partial sync was refused, rewriting all rules", error);
      return undefined;
    }
  }

  /** Writes everything. Rejects if nothing could be written. */
  async replace(full: Omit<FullTransaction, "before" | "onRefused">): Promise<WrittenRules> {
    const { iptables, metrics, log } = this.#options;
    this.#plan = undefined;
    const onRefused = (error: IptablesRestoreError): void => {
      metrics.restoreFailures.inc();
      log.error("Failed to execute iptables-restore", error);
    };
    try {
      const { failures, installed, written } = await applyFull(iptables, {
        ...full,
        before: this.#isHalfway ? this.#installed : undefined,
        onRefused,
      });
      this.#isHalfway = false;
      this.#installed.replace(full.plan, installed);
      this.#refused.replace(failures);
      this.#plan = failures.has(STATIC_RULES) ? undefined : full.plan;
      return written;
    } catch (error) {
      if (error instanceof IptablesRestoreError && !isAttributable(error)) metrics.restoreFailures.inc();
      throw error;
    }
  }

  /** Drops the retried deletion of a stale chain that an owner has again: it would empty the chain. */
  #leaveOwnedAgain(changes: OwnerChange[]): void {
    if (!changes.some(({ owner }) => staleChainOf(owner) !== undefined)) return;
    const owned = new Set<string>(changes.flatMap(({ after }) => declaredChains(after?.ownChains ?? "")));
    for (const [index, { owner }] of [...changes.entries()].reverse()) {
      const chain = staleChainOf(owner);
      if (chain === undefined || !owned.has(chain)) continue;
      this.#refused.delete(owner);
      changes.splice(index, 1);
    }
  }

  /** Undefined if there is nothing to do for the owner. */
  #changeOf(owner: string, desired: DesiredPort | UnplannedPort | undefined): OwnerChange | undefined {
    const chain = staleChainOf(owner);
    if (chain !== undefined) return removalOf(chain);
    const before = this.#installed.get(owner);
    if (desired === undefined) {
      if (before !== undefined) return { owner, before };
      this.#refused.delete(owner);
      return undefined;
    }
    if ("rules" in desired) return { owner, before, after: desired.rules };
    this.#refused.refuse(owner, desired.reason, desired.name.text);
    return undefined;
  }

  /**
   * Retries previously rejected parts, after the others and apart from them: one bad Service must not turn every later
   * change into a rewrite of the whole cluster.
   *
   * @returns what was written, including `written`.
   */
  async #tryRefusedAgain(changes: readonly OwnerChange[], written: WrittenRules): Promise<WrittenRules> {
    const { iptables, metrics } = this.#options;
    const again = changes.filter(({ owner }) => this.#refused.has(owner));
    if (again.length === 0) return written;
    const result = await bisectChanges(iptables, again, {
      onRefused: () => metrics.restoreFailures.inc(),
      maxRefusals: MAX_REFUSALS,
    });
    for (const [owner, rules] of result.states) {
      if (staleChainOf(owner) === undefined) this.#installed.put(owner, rules);
    }
    for (const owner of result.accepted) this.#refused.delete(owner);
    for (const [owner, reason] of result.refused) this.#refused.refuse(owner, reason);
    return addWritten(written, result.written);
  }
}

/** The rules in the kernel: static ones, those of every owner, and totals, which are updated incrementally. */
export class InstalledRules extends Map<string, OwnerRules> {
  #plan = NOTHING_STATIC;
  #counts = { filter: 0, nat: 0 };

  /** @param rules undefined: none. */
  put(owner: string, rules: OwnerRules | undefined): void {
    this.#count(this.get(owner), -1);
    this.#count(rules, 1);
    if (rules === undefined) this.delete(owner);
    else this.set(owner, rules);
  }

  /** Replaces everything after a full sync. */
  replace(plan: StaticPlan, installed: Iterable<readonly [owner: string, rules: OwnerRules]>): void {
    const { filterHead, filterTail, natHead, natTail } = plan;
    this.clear();
    this.#plan = plan;
    this.#counts = { filter: filterHead.length + filterTail.length, nat: natHead.length + natTail.length };
    for (const [owner, rules] of installed) this.put(owner, rules);
  }

  /** How many rules each shared or fixed chain has; each read counts them. */
  get chains(): Readonly<Record<ServiceTable, ReadonlyMap<string, number>>> {
    return { filter: this.#chainsOf("filter"), nat: this.#chainsOf("nat") };
  }

  /** How many rules each table has. */
  get ruleCounts(): WrittenRules {
    return { ...this.#counts };
  }

  #chainsOf(table: ServiceTable): ReadonlyMap<string, number> {
    const plan = this.#plan;
    const counts = new Map<string, number>(plan[`${table}Chains`].map((chain) => [chain, 0]));
    const add = (chain: string, count: number) => counts.set(chain, (counts.get(chain) ?? 0) + count);
    for (const { chain } of [...plan[`${table}Head`], ...plan[`${table}Tail`]]) add(chain, 1);
    for (const rules of this.values()) for (const [chain, count] of countByChain(rules[table])) add(chain, count);
    return counts;
  }

  #count(rules: OwnerRules | undefined, sign: 1 | -1): void {
    if (rules === undefined) return;
    this.#counts.filter += sign * lineCount(rules.filter);
    this.#counts.nat += sign * (lineCount(rules.nat) + rules.ownRuleCount);
  }
}
