/** Compares and reconciles the iptables rules of one family: jumps, chains and the few rules in them. */
import { type Iptables, isUnreadable } from "../../kernel/iptables/iptables.ts";
import { readRuleset, type SavedTable } from "../../kernel/iptables/parser/ruleset.ts";
import { chainLines, ruleLines, ruleSpec, transactionText } from "../../kernel/iptables/rule-text.ts";
import type { Logger } from "../../logging/logger.ts";
import { CHAINS as IPTABLES_CHAINS, isServiceChain } from "../shared/iptables-rules/chain-names.ts";
import { ensureJumps, isPrinted, jumpLines } from "../shared/iptables-rules/ensure-jumps.ts";
import { cleanUpIptables, type SharedRules } from "../shared/iptables-rules/remove-rules.ts";
import type { JumpRule } from "../shared/iptables-rules/rules-plan.ts";
import { savedRule } from "../shared/iptables-rules/saved-form.ts";
import { CHAINS_OF, JUMP_RULES, type RulesPlan } from "./plan-rules.ts";

const TABLES = ["nat", "filter"] as const;
type Table = (typeof TABLES)[number];

type Saved = Readonly<Record<Table, SavedTable>>;

/** Differences between the rules in the kernel and the wanted ones. */
interface RulesDifference {
  /** Undefined if the tool cannot print the rules: then the last sent ones are assumed to be present. */
  readonly saved: Saved | undefined;
  readonly missingJumps: readonly JumpRule[];
  readonly differs: boolean;
}

/** The input of iptables-restore that leaves exactly these rules in the mode's chains, and adds jumps to them. */
export function restoreText(plan: RulesPlan, jumps: readonly JumpRule[] = []): string {
  return TABLES.map((table) => {
    const added = jumpLines(jumps.filter((jump) => jump.table === table));
    return transactionText(table, chainLines(CHAINS_OF[table]) + added + ruleLines("append", plan[table]));
  }).join("");
}

export class IptablesRules {
  readonly #iptables: Iptables;
  /** The last accepted plan; undefined after a failed write or read. */
  #installed: RulesPlan | undefined;
  /** Whether this iptables prints rules in an unexpected form, so that only their number can be compared. Unknown at first. */
  #printsOtherwise: boolean | undefined;
  #hasLeftovers = false;

  constructor(iptables: Iptables) {
    this.#iptables = iptables;
  }

  /** Whether these are the rules that were last accepted. */
  isInstalled(plan: RulesPlan): boolean {
    return this.#installed !== undefined && restoreText(this.#installed) === restoreText(plan);
  }

  /** Whether the kernel is known to have the rules that were sent last. */
  get isKnown(): boolean {
    return this.#installed !== undefined;
  }

  /** Compares with the kernel. */
  async compare(plan: RulesPlan): Promise<RulesDifference> {
    const saved = await this.#save();
    this.#hasLeftovers ||= saved === undefined || hasLeftovers(saved);
    if (saved === undefined) return { saved, missingJumps: [], differs: !this.isInstalled(plan) };
    if (this.#isEqual(saved, plan)) this.#printsOtherwise ??= false;
    else if (this.#printsOtherwise === undefined && this.isInstalled(plan)) {
      await this.replace(plan);
      const again = await this.#save();
      if (again !== undefined) this.#printsOtherwise = !this.#isEqual(again, plan);
    }
    return { saved, missingJumps: missingJumps(saved), differs: !this.#isEqual(saved, plan) };
  }

  /** Repairs the difference. Throws an IptablesError if the tools or the kernel reject it. */
  async repair(plan: RulesPlan, { saved, missingJumps: missing, differs }: RulesDifference): Promise<void> {
    this.#installed = undefined;
    // No rule can jump to a chain that does not exist. Jumps to existing chains may only be printed in another form.
    const areNew =
      saved !== undefined && missing.every(({ table, target }) => table !== "mangle" && !saved[table].has(target));
    const known = { filter: saved?.filter, natChains: saved?.nat.keys() };
    if (!areNew) await ensureJumps(this.#iptables, known, JUMP_RULES);
    if (differs || (areNew && missing.length > 0)) {
      await this.#iptables.restore([restoreText(plan, areNew ? missing : [])]);
    }
    this.#installed = plan;
  }

  /** Sends the rules without reading the present ones. Throws as {@link IptablesRules.repair}. */
  async replace(plan: RulesPlan): Promise<void> {
    this.#installed = undefined;
    await this.#iptables.restore([restoreText(plan)]);
    this.#installed = plan;
  }

  /** Removes rules of the iptables mode if any were seen. Never rejects: failures are logged. @returns whether all are gone. */
  async removeLeftovers(log: Logger): Promise<boolean> {
    if (!this.#hasLeftovers) return true;
    log.info("Removing what the iptables mode left behind", { ipFamily: this.#iptables.family });
    return await cleanUpIptables(this.#iptables, log, OWN);
  }

  async #save(): Promise<Saved | undefined> {
    const text = await this.#iptables.save().catch((error: unknown) => {
      if (isUnreadable(error)) return undefined;
      // The rules may be gone by now.
      this.#installed = undefined;
      throw error;
    });
    if (text === undefined) return undefined;
    const tables = readRuleset(text);
    return { nat: tables.get("nat") ?? new Map(), filter: tables.get("filter") ?? new Map() };
  }

  #isEqual(saved: Saved, plan: RulesPlan): boolean {
    // An equal number of rules proves nothing if these were never sent.
    if (this.#printsOtherwise === true && !this.isInstalled(plan)) return false;
    return TABLES.every((table) => {
      const wanted = new Map<string, string[]>(CHAINS_OF[table].map((chain) => [chain, []]));
      for (const rule of plan[table]) wanted.get(rule.chain)?.push(savedRule(rule, this.#iptables.family));
      return [...wanted].every(([chain, rules]) => {
        const there = saved[table].get(chain)?.rules;
        if (there?.length !== rules.length) return false;
        return this.#printsOtherwise || rules.every((rule, index) => rule === there[index]);
      });
    });
  }
}

function missingJumps(saved: Saved): JumpRule[] {
  return JUMP_RULES.filter(({ table, rule }) => table !== "mangle" && !isPrinted(saved[table], rule));
}

function hasLeftovers({ filter, nat }: Saved): boolean {
  if (filter.has(IPTABLES_CHAINS.services) || filter.has(IPTABLES_CHAINS.externalServices)) return true;
  return [...nat.keys()].some(isServiceChain);
}

const OWN_JUMPS: ReadonlySet<string> = new Set(JUMP_RULES.map(({ table, rule }) => `${table} ${ruleSpec(rule)}`));

const OWN: SharedRules = {
  hasJump: ({ table, rule }) => OWN_JUMPS.has(`${table} ${ruleSpec(rule)}`),
  hasChain: (table, chain) => (CHAINS_OF[table] as readonly string[]).includes(chain),
};
