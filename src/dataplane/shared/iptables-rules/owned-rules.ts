/**
 * The rules of service ports in the kernel: what each has there, which of them were refused and keep their last good ones, and whether
 * memory is to be believed. A change goes as a difference, and where that cannot be, everything is written.
 */
import { type Iptables, IptablesRestoreError, isAttributable } from "../../../kernel/iptables/iptables.ts";
import type { Logger } from "../../../logging/logger.ts";
import type { SyncFailure } from "../../../sync/backend.ts";
import { RefusedPorts } from "../refused-ports.ts";
import { bisectChanges, removalOf } from "./bisect-changes.ts";
import { deltaPayload, type OwnerChange } from "./delta-payload.ts";
import { InstalledRules } from "./installed-rules.ts";
import { remembered } from "./owner-rules.ts";
import { addWritten, send, staleChainOf, type WrittenRules } from "./payload.ts";
import type { StaticPlan } from "./rules-plan.ts";
import {
  applyFull,
  type DesiredPort,
  type FilterEntries,
  type FullTransaction,
  STATIC_RULES,
  type UnplannedPort,
} from "./transactions.ts";

interface OwnedRulesOptions {
  readonly iptables: Iptables;
  readonly metrics: {
    /** Refused or failed iptables-restore. */
    readonly restoreFailures: { inc(): void };
    /** Those of changes. @default not counted */
    readonly partialRestoreFailures?: { inc(): void };
  };
  readonly log: Logger;
}

/** Refused restores that one change puts up with while it tries refused parts again. */
const MAX_REFUSALS = 32;

export class OwnedRules {
  readonly #options: OwnedRulesOptions;
  readonly #installed = new InstalledRules();
  readonly #refused = new RefusedPorts();
  #plan: StaticPlan | undefined;
  /** From before a change that failed; until everything is written. */
  #filterBefore: FilterEntries = new Map();

  constructor(options: OwnedRulesOptions) {
    this.#options = options;
  }

  /** The static rules in the kernel; undefined when the kernel is not known to match memory. */
  get plan(): StaticPlan | undefined {
    return this.#plan;
  }

  get installed(): Omit<InstalledRules, "set" | "replace"> {
    return this.#installed;
  }

  /** By owner, what the kernel refused. */
  get failures(): ReadonlyMap<string, SyncFailure> {
    return this.#refused.byOwner;
  }

  /** Everything must be written. */
  forget(): void {
    this.#plan = undefined;
  }

  /**
   * Sends the changed owners only, and tries the refused ones again.
   *
   * @param desired what an owner is to have from now on. @returns undefined when everything must be written.
   */
  async change(
    changed: Iterable<string>,
    desired: (owner: string) => DesiredPort | UnplannedPort | undefined,
  ): Promise<WrittenRules | undefined> {
    const { iptables, metrics, log } = this.#options;
    // Parts may have been refused that no change had asked for.
    const owners = new Set([...changed, ...this.#refused.owners]);
    const changes = [...owners].flatMap((owner) => this.#changeOf(owner, desired(owner)) ?? []);
    const others = changes.filter(({ owner }) => !this.#refused.has(owner));
    try {
      const written = await send(iptables, deltaPayload(others));
      for (const { owner, after } of others) this.#installed.set(owner, after && remembered(after));
      return await this.#tryRefusedAgain(changes, written);
    } catch (error) {
      this.#plan = undefined;
      metrics.restoreFailures.inc();
      metrics.partialRestoreFailures?.inc();
      // The change may be in force in filter, which comes before nat: only we know what was there.
      this.#filterBefore = new Map(changes.map(({ owner, before: old }) => [owner, old?.filter ?? ""]));
      if (!isAttributable(error)) throw error;
      log.error("Partial sync was refused, rewriting all rules", error);
      return undefined;
    }
  }

  /** Writes everything. Rejects when nothing could be written. */
  async replace(full: Omit<FullTransaction, "filterBefore" | "onRefused">): Promise<WrittenRules> {
    const { iptables, metrics, log } = this.#options;
    this.#plan = undefined;
    const onRefused = (error: IptablesRestoreError): void => {
      metrics.restoreFailures.inc();
      log.error("Failed to execute iptables-restore", error);
    };
    try {
      const { failures, installed, written } = await applyFull(iptables, {
        ...full,
        filterBefore: this.#filterBefore,
        onRefused,
      });
      this.#filterBefore = new Map();
      this.#installed.replace(full.plan, installed);
      this.#refused.replace(failures);
      this.#plan = failures.has(STATIC_RULES) ? undefined : full.plan;
      return written;
    } catch (error) {
      if (error instanceof IptablesRestoreError && !isAttributable(error)) metrics.restoreFailures.inc();
      throw error;
    }
  }

  /** Undefined when there is nothing to do for the owner. */
  #changeOf(owner: string, desired: DesiredPort | UnplannedPort | undefined): OwnerChange | undefined {
    const chain = staleChainOf(owner);
    if (chain !== undefined) return removalOf(chain);
    const before = this.#installed.get(owner);
    if (desired === undefined) {
      if (before !== undefined) return { owner, before };
      this.#refused.forget(owner);
      return undefined;
    }
    if ("rules" in desired) return { owner, before, after: desired.rules };
    this.#refused.refuse(owner, desired.reason, desired.name.text);
    return undefined;
  }

  /**
   * Parts that were refused before are tried once more, after the others and apart from them: one bad service must not
   * make every later change a rewriting of the whole cluster.
   *
   * @returns what was written, with this and before.
   */
  async #tryRefusedAgain(changes: readonly OwnerChange[], written: WrittenRules): Promise<WrittenRules> {
    const { iptables, metrics } = this.#options;
    const again = changes.filter(({ owner }) => this.#refused.has(owner));
    if (again.length === 0) return written;
    const result = await bisectChanges(iptables, again, {
      onRefused: () => metrics.restoreFailures.inc(),
      maxRefusals: MAX_REFUSALS,
    });
    for (const [owner, rules] of result.states) this.#installed.set(owner, rules);
    for (const owner of result.accepted) this.#refused.forget(owner);
    for (const [owner, reason] of result.refused) this.#refused.refuse(owner, reason);
    return addWritten(written, result.written);
  }
}
