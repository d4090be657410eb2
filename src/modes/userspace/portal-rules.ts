/**
 * Writes the portal rules to the kernel in restore payloads: all rules, or the difference for some service ports.
 * Upstream starts a process for each rule; the resulting rules are the same. Reference userspace.md §1.2, §1.6.
 */

import { hash } from "node:crypto";
import type { Written } from "../../contract/backend.ts";
import { type Iptables, type IptablesTable, isAttributable, type Presence } from "../../kernel/iptables/iptables.ts";
import { targetOf } from "../../kernel/iptables/parser/rule-parts.ts";
import type { SavedTable } from "../../kernel/iptables/parser/ruleset.ts";
import type { Rule } from "../../kernel/iptables/rule.ts";
import { chainLines, deletionLines, ruleLines, transactionText } from "../../kernel/iptables/rule-text.ts";
import { KernelWaits } from "../../kernel/kernel-waits.ts";
import type { Logger } from "../../logging/logger.ts";
import type { RestoreMetrics, RuleCountMetrics } from "../shared/iptables-metrics.ts";
import { ensureJumps } from "../shared/iptables-rules/ensure-jumps.ts";
import { fullPayload } from "../shared/iptables-rules/full-payload.ts";
import { OwnedRules } from "../shared/iptables-rules/owned-rules.ts";
import { send, type WrittenRules } from "../shared/iptables-rules/payload.ts";
import { readSaved, readSavedIfReadable } from "../shared/iptables-rules/saved-rules.ts";
import type { DesiredPort } from "../shared/iptables-rules/transactions.ts";
import { PORTAL_CHAINS, PORTAL_JUMPS, PORTAL_STATIC_PLAN } from "./plan-portal-rules.ts";

interface PortalRulesOptions {
  readonly iptables: Iptables;
  readonly metrics: RestoreMetrics & RuleCountMetrics;
  readonly log: Logger;
}

export class PortalRules {
  readonly #options: PortalRulesOptions;
  readonly #wanted = new Map<string, DesiredPort>();
  readonly #rules: OwnedRules;
  /** Changes with every write, so that a check can detect a concurrent one. */
  #writes = 0;
  /** The digest of the rules at the first check after the last write. */
  #digest: string | undefined;

  readonly #waits = new KernelWaits();
  /** The counts of the last write. */
  #written: WrittenRules = { filter: 0, nat: 0 };

  constructor(options: PortalRulesOptions) {
    this.#options = { ...options, iptables: this.#waits.timed(options.iptables) };
    this.#rules = new OwnedRules(this.#options);
  }

  /** Counts of the last {@link write}. */
  get written(): Written {
    const { filter, nat } = this.#written;
    return { counts: { "rules in filter": filter, "rules in nat": nat }, kernelMs: this.#waits.ms };
  }

  /**
   * Creates the chains and jumps, and flushes the chains: rules of an earlier run lead to ports that another process
   * may hold by now.
   */
  async start(): Promise<void> {
    await this.#ensureJumps();
    await this.#empty();
  }

  /** Sets the wanted rules of an owner, which the next write applies. */
  want(key: string, wanted: DesiredPort | undefined): void {
    if (wanted === undefined) this.#wanted.delete(key);
    else this.#wanted.set(key, wanted);
  }

  /**
   * Writes the wanted rules: all of them, or those of these owners.
   *
   * @returns what the kernel rejected, by owner or by name. Rejects if nothing could be written.
   */
  async write(changed: Iterable<string> | "all"): Promise<ReadonlyMap<string, string>> {
    this.#writes += 1;
    this.#digest = undefined;
    this.#written = { filter: 0, nat: 0 };
    this.#waits.begin();
    try {
      const isWhole = changed === "all" || this.#rules.plan === undefined;
      const written = isWhole ? undefined : await this.#rules.change(changed, (owner) => this.#wanted.get(owner));
      this.#written = written ?? (await this.#writeAll());
      const { installed, failures } = this.#rules;
      for (const table of ["filter", "nat"] as const) {
        this.#options.metrics.setTotal(table, installed.ruleCounts[table]);
      }
      return new Map(Array.from(failures, ([owner, { reason }]) => [owner, reason]));
    } finally {
      this.#writes += 1;
    }
  }

  /** Whether another program changed the rules since the last write. */
  async isIntact(): Promise<Presence> {
    if (this.#rules.plan === undefined) return "unknown";
    const { iptables, log } = this.#options;
    const writes = this.#writes;
    let saved: SavedTables;
    try {
      saved = { nat: await readSaved(iptables, "nat"), filter: await readSaved(iptables, "filter") };
    } catch (error) {
      log.error("Portal rules could not be checked", error);
      return "unknown";
    }
    if (writes !== this.#writes) return "unknown";
    const rules = savedRules(saved);
    if (rules === undefined) return "absent";
    const { filter, nat } = this.#rules.installed.ruleCounts;
    if (rules.length !== filter + nat) return "absent";
    const digest = digestOf(rules);
    this.#digest ??= digest;
    return digest === this.#digest ? "present" : "absent";
  }

  /** Flushes the chains, so that nothing leads to released ports. */
  async clear(): Promise<void> {
    this.#wanted.clear();
    this.#rules.forget();
    await this.#empty();
  }

  async #writeAll(): Promise<WrittenRules> {
    this.#rules.forget();
    await this.#ensureJumps();
    return await this.#rules.replace({
      plan: PORTAL_STATIC_PLAN,
      ports: new Map([...this.#wanted].sort(byOwner)),
      unplanned: new Map(),
      staleChains: [],
      savedFilter: undefined,
    });
  }

  async #ensureJumps(): Promise<void> {
    const { iptables } = this.#options;
    const filter = await readSavedIfReadable(iptables, "filter");
    const natChains = (await readSavedIfReadable(iptables, "nat"))?.keys();
    await ensureJumps(iptables, { filter, natChains }, PORTAL_JUMPS);
  }

  async #empty(): Promise<void> {
    await send(this.#options.iptables, fullPayload({ plan: PORTAL_STATIC_PLAN, ports: [] }));
  }
}

const byOwner = ([a]: readonly [string, unknown], [b]: readonly [string, unknown]) => (a < b ? -1 : a > b ? 1 : 0);

/** Whether rules may match packets by bridge port; not every kernel has xt_physdev. */
export async function knowsBridgePorts(iptables: Iptables): Promise<boolean> {
  const chain = "KUBE-PORTALS-PROBE";
  const question: Rule = { chain, matches: [{ kind: "bridge-port-in", negate: true }], target: { kind: "return" } };
  const restore = (line: string) => iptables.restore([transactionText("nat", chainLines([chain]) + line)]);
  try {
    await restore(ruleLines("append", [question]));
  } catch (error) {
    if (isAttributable(error)) return false;
    throw error;
  }
  await restore(deletionLines([chain]));
  return true;
}

const CHAINS: ReadonlySet<string> = new Set(Object.values(PORTAL_CHAINS));

type SavedTables = Readonly<Record<Exclude<IptablesTable, "mangle">, SavedTable>>;

/** The rules in the portal chains, with the names of the chains; undefined if a jump to one of them is missing. */
function savedRules(saved: SavedTables): readonly string[] | undefined {
  const hasJumps = PORTAL_JUMPS.every(({ table, rule, target }) => {
    const rules = table === "mangle" ? undefined : saved[table].get(rule.chain)?.rules;
    return rules?.some((text) => targetOf(text) === target) === true;
  });
  if (!hasJumps) return undefined;
  return (["filter", "nat"] as const).flatMap((table) =>
    [...saved[table]].flatMap(([chain, { rules }]) =>
      CHAINS.has(chain) ? rules.map((text) => `${chain} ${text}`) : [],
    ),
  );
}

/** A digest of rules and their order. */
function digestOf(rules: readonly string[]): string {
  return hash("sha256", rules.join("\n"));
}
