/**
 * One table of the in-memory kernel, and the transaction that changes it: chains, rules, references between chains, and
 * the rejections of the real kernel and tools.
 */

import { BUILT_IN_CHAINS, type BuiltInChain, type IptablesTable } from "../../../src/kernel/iptables/iptables.ts";
import { checkChainName, type KernelRule } from "../../../src/kernel/iptables/parser/rule-syntax.ts";
import { isTargetName, type TargetKind } from "../../../src/kernel/iptables/parser/rule-targets.ts";

/** A rule with its printed form and its identity. Shared between chains and transactions; never changed. */
export interface StoredRule {
  readonly rule: KernelRule;
  readonly text: string;
  readonly identity: string;
}

export interface StoredChain {
  /** Undefined for chains that are not built in. */
  readonly policy: string | undefined;
  readonly rules: readonly StoredRule[];
  /** Number of rules of the table that jump here. */
  readonly references: number;
}

export type TableState = ReadonlyMap<string, StoredChain>;

/** A table without rules. */
export function emptyTable(table: IptablesTable): TableState {
  return new Map(BUILT_IN_CHAINS[table].map((name) => [name, { policy: "ACCEPT", rules: [], references: 0 }]));
}

/** Where the kernel accepts targets: tables, and built-in chains from which the rule may be reached. */
const PLACES: Partial<
  Record<TargetKind, { readonly tables: readonly IptablesTable[]; readonly hooks?: readonly BuiltInChain[] }>
> = {
  // iptables: 'The "nat" table is not intended for filtering, the use of DROP is therefore inhibited.'
  DROP: { tables: ["filter", "mangle"] },
  REJECT: { tables: ["filter"], hooks: ["INPUT", "FORWARD", "OUTPUT"] },
  MASQUERADE: { tables: ["nat"], hooks: ["POSTROUTING"] },
  REDIRECT: { tables: ["nat"], hooks: ["PREROUTING", "OUTPUT"] },
  DNAT: { tables: ["nat"], hooks: ["PREROUTING", "OUTPUT"] },
};

/** Whose error message names the line at fault: the nf_tables tools', the legacy ones', both, or neither for sure. */
export type NamedBy = "both" | "legacy" | "nft" | "neither";

/** A rejection by the kernel or the tool. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly namedBy: NamedBy;
  constructor(reason: string, namedBy: NamedBy) {
    super(reason);
    this.namedBy = namedBy;
  }
}

const NO_CHAIN = "No chain/target/match by that name";

interface DraftChain {
  policy: string | undefined;
  rules: StoredRule[];
  references: number;
}

/** Named objects outside the table that rules refer to. */
export interface NamedObjects {
  /** An nfacct object. */
  hasCounter(name: string): boolean;
  /** An IP set. */
  hasSet(name: string): boolean;
}

/** A transaction on one table. None of its changes show before {@link TableDraft.commit}. */
export class TableDraft {
  readonly table: IptablesTable;
  readonly #chains: Map<string, StoredChain>;
  /** Chains of `#chains` that are this draft's own copies. */
  readonly #owned = new Map<string, DraftChain>();
  readonly #objects: NamedObjects;

  constructor(table: IptablesTable, state: TableState, objects: NamedObjects) {
    this.table = table;
    this.#chains = new Map(state);
    this.#objects = objects;
  }

  has(chain: string): boolean {
    return this.#chains.has(chain);
  }

  createChain(name: string): void {
    checkChainName(name);
    if (this.has(name) || isTargetName(name)) throw new Refusal("Chain already exists", "both");
    const chain: DraftChain = { policy: undefined, rules: [], references: 0 };
    this.#chains.set(name, chain);
    this.#owned.set(name, chain);
  }

  /** A chain line of a payload: creates the chain, or empties it unless it is built in. */
  declareChain(name: string, policy: string): void {
    if (!this.has(name)) this.createChain(name);
    else if (this.#chains.get(name)?.policy === undefined) this.flush(name);
    else if (policy !== "-") this.#own(name).policy = policy;
  }

  flush(name: string): void {
    const chain = this.#own(name);
    for (const { rule } of chain.rules) this.#refer(rule, -1);
    chain.rules = [];
  }

  deleteChain(name: string): void {
    const chain = this.#chains.get(name);
    if (chain === undefined) throw new Refusal(NO_CHAIN, "both");
    if (chain.policy !== undefined) throw new Refusal("Invalid argument", "both");
    if (chain.rules.length > 0 || chain.references > 0) {
      throw new Refusal(`CHAIN_DEL failed (Device or resource busy): chain ${name}`, "both");
    }
    this.#chains.delete(name);
    this.#owned.delete(name);
  }

  /** @param position 0-based; undefined appends. */
  addRule(name: string, stored: StoredRule, position?: number): void {
    const chain = this.#own(name);
    this.#checkRule(name, stored.rule);
    if (position === undefined) chain.rules.push(stored);
    else if (position >= 0 && position <= chain.rules.length) chain.rules.splice(position, 0, stored);
    else throw new Refusal("Index of insertion too big", "both");
    this.#refer(stored.rule, 1);
  }

  hasRule(name: string, identity: string): boolean {
    return this.#chains.get(name)?.rules.some((stored) => stored.identity === identity) ?? false;
  }

  /** Deletes the first such rule. */
  deleteRule(name: string, identity: string): void {
    const chain = this.#chains.get(name);
    if (chain === undefined) throw new Refusal(NO_CHAIN, "both");
    const position = chain.rules.findIndex((stored) => stored.identity === identity);
    if (position < 0) throw new Refusal("Bad rule (does a matching rule exist in that chain?)", "both");
    this.#removeAt(name, position);
  }

  /** @param position 0-based. */
  deleteRuleAt(name: string, position: number): void {
    const chain = this.#chains.get(name);
    if (chain === undefined) throw new Refusal(NO_CHAIN, "both");
    if (position >= chain.rules.length) throw new Refusal("Index of deletion too big", "both");
    this.#removeAt(name, position);
  }

  /** The table after the transaction. Throws {@link Refusal} for what the kernel only finds now. */
  commit(): TableState {
    for (const hook of BUILT_IN_CHAINS[this.table]) this.#walk(hook, hook, new Set(), new Set());
    return this.#chains;
  }

  #removeAt(name: string, position: number): void {
    const [removed] = this.#own(name).rules.splice(position, 1);
    if (removed !== undefined) this.#refer(removed.rule, -1);
  }

  #own(name: string): DraftChain {
    const owned = this.#owned.get(name);
    if (owned !== undefined) return owned;
    const chain = this.#chains.get(name);
    if (chain === undefined) throw new Refusal(NO_CHAIN, "both");
    const copy: DraftChain = { policy: chain.policy, rules: [...chain.rules], references: chain.references };
    this.#chains.set(name, copy);
    this.#owned.set(name, copy);
    return copy;
  }

  #refer({ target }: KernelRule, change: 1 | -1): void {
    if (target.kind === "jump" || target.kind === "goto") this.#own(target.chain).references += change;
  }

  #checkRule(chain: string, { target, matches }: KernelRule): void {
    if (target.kind === "jump" || target.kind === "goto") {
      const to = this.#chains.get(target.chain);
      if (to === undefined) throw new Refusal(`Chain '${target.chain}' does not exist`, "legacy");
      if (to.policy !== undefined) throw new Refusal(refusedRule("No such file or directory", chain), "both");
    } else if (target.kind !== "none") {
      const { tables } = PLACES[target.kind] ?? {};
      if (tables !== undefined && !tables.includes(this.table)) {
        throw new Refusal(refusedRule("Invalid argument", chain), target.kind === "DROP" ? "both" : "nft");
      }
    }
    for (const match of matches) {
      if (match.kind === "nfacct" && !this.#objects.hasCounter(match.counter)) {
        throw new Refusal(refusedRule("No such file or directory", chain), "nft");
      }
      if (match.kind === "set" && !this.#objects.hasSet(match.name)) {
        throw new Refusal(`Set ${match.name} doesn't exist`, "both");
      }
    }
  }

  /** Follows jumps from a built-in chain: no loops, and no target where it does not work. */
  #walk(hook: BuiltInChain, name: string, path: Set<string>, done: Set<string>): void {
    path.add(name);
    for (const { rule } of this.#chains.get(name)?.rules ?? []) {
      const { target } = rule;
      if (target.kind === "jump" || target.kind === "goto") {
        if (path.has(target.chain)) throw new Refusal(refusedRule("Too many links", name), "neither");
        if (!done.has(target.chain)) this.#walk(hook, target.chain, path, done);
      } else if (target.kind !== "none") {
        const { hooks } = PLACES[target.kind] ?? {};
        if (hooks !== undefined && !hooks.includes(hook)) {
          throw new Refusal(refusedRule("Invalid argument", name), "neither");
        }
      }
    }
    path.delete(name);
    done.add(name);
  }
}

function refusedRule(reason: string, chain: string): string {
  return `RULE_APPEND failed (${reason}): rule in chain ${chain}`;
}
