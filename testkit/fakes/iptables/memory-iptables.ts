/**
 * An in-memory kernel behind {@link Iptables}, with the real one's semantics and rejections: it accepts what the host's
 * tools accept, and `save` prints what iptables-save would. For tests, rendering and the tracer. Passes the same
 * contract test as the real thing (`iptables-contract.ts`).
 */

import {
  BUILT_IN_CHAINS,
  type Iptables,
  IptablesError,
  IptablesRestoreError,
  type IptablesTable,
  type Presence,
  type RulePosition,
} from "../../../src/kernel/iptables/iptables.ts";
import { RuleSyntaxError } from "../../../src/kernel/iptables/parser/rule-options.ts";
import type { KernelRule } from "../../../src/kernel/iptables/parser/rule-syntax.ts";
import type { IpFamily } from "../../../src/net/ip.ts";
import { runRestore, storedRuleOfWords } from "./memory-restore.ts";
import { emptyTable, type NamedObjects, Refusal, TableDraft, type TableState } from "./memory-table.ts";

export interface MemoryIptablesOptions {
  /** Names of nfacct objects; rules that name others are rejected. Read at every use. @default none */
  readonly counters?: ReadonlySet<string>;
  /** Whether there is an IP set of that name; rules that name others are rejected. Asked at every use. @default none */
  readonly hasSet?: (name: string) => boolean;
  /**
   * The back end whose errors are imitated: nft names the line of most rejections, legacy only
   * of those it finds while reading.
   * @default "nft"
   */
  readonly backEnd?: "nft" | "legacy";
}

const LOCK_MESSAGE = "Another app is currently holding the xtables lock. Stopped waiting after 5s.";

export class MemoryIptables implements Iptables {
  readonly family: IpFamily;
  /** Whether another program holds the xtables lock: everything but `save` then fails. */
  isLocked = false;
  /** Number of attempted restores. */
  restoreCount = 0;
  readonly #backEnd: "nft" | "legacy";
  readonly #objects: NamedObjects;
  #generation = 1;
  readonly #tables: Record<IptablesTable, TableState> = {
    filter: emptyTable("filter"),
    nat: emptyTable("nat"),
    mangle: emptyTable("mangle"),
  };

  constructor(family: IpFamily, options: MemoryIptablesOptions = {}) {
    this.family = family;
    this.#backEnd = options.backEnd ?? "nft";
    const counters = options.counters ?? new Set();
    this.#objects = { hasCounter: (name) => counters.has(name), hasSet: options.hasSet ?? (() => false) };
  }

  async ensureChain(table: IptablesTable, chain: string): Promise<void> {
    this.#change("-N", table, (draft) => {
      if (!draft.has(chain)) draft.createChain(chain);
    });
  }

  async chainPresence(table: IptablesTable, chain: string): Promise<Presence> {
    if (this.isLocked) return "unknown";
    return this.#tables[table].has(chain) ? "present" : "absent";
  }

  async deleteChain(table: IptablesTable, chain: string): Promise<void> {
    this.#change("-X", table, (draft) => draft.deleteChain(chain));
  }

  async ensureRule(
    table: IptablesTable,
    chain: string,
    args: readonly string[],
    position: RulePosition = "head",
  ): Promise<void> {
    this.#change(position === "head" ? "-I" : "-A", table, (draft) => {
      const stored = storedRuleOfWords(args, this.family);
      if (!draft.hasRule(chain, stored.identity)) draft.addRule(chain, stored, position === "head" ? 0 : undefined);
    });
  }

  async rulePresence(table: IptablesTable, chain: string, args: readonly string[]): Promise<Presence> {
    if (this.isLocked) return "unknown";
    return this.#hasRule(table, chain, args) ? "present" : "absent";
  }

  async deleteRule(table: IptablesTable, chain: string, args: readonly string[]): Promise<void> {
    this.#change("-D", table, (draft) => {
      const { identity } = storedRuleOfWords(args, this.family);
      if (draft.hasRule(chain, identity)) draft.deleteRule(chain, identity);
    });
  }

  get prefersSmallTransactions(): boolean {
    return this.#backEnd === "nft";
  }

  async chainNames(table: IptablesTable): Promise<readonly string[]> {
    return this.chains(table);
  }

  async chainUses(table: IptablesTable): Promise<ReadonlyMap<string, number>> {
    const state = this.#tables[table];
    return new Map(Array.from(state, ([name, { rules, references }]) => [name, rules.length + references]));
  }

  async ruleCount(table: IptablesTable, chain: string): Promise<number> {
    return this.#tables[table].get(chain)?.rules.length ?? 0;
  }

  async generation(): Promise<number | undefined> {
    return this.#backEnd === "nft" ? this.#generation : undefined;
  }

  async save(table?: IptablesTable): Promise<string> {
    const tables = table === undefined ? (["mangle", "nat", "filter"] as const) : [table];
    return tables.map((name) => this.dump(name)).join("");
  }

  async restore(payload: Iterable<string>, options: { readonly table?: IptablesTable } = {}): Promise<void> {
    this.restoreCount += 1;
    if (this.isLocked) throw new IptablesRestoreError("lock_held", "iptables-restore", 4, LOCK_MESSAGE, undefined);
    const target = {
      family: this.family,
      backEnd: this.#backEnd,
      begin: (table: IptablesTable) => this.#begin(table),
      commit: (draft: TableDraft) => this.#commit(draft),
    };
    runRestore(payload, target, options.table);
  }

  /** {@link MemoryIptables.save} without waiting: built-in chains first, then the others by name, as the tools do. */
  dump(table: IptablesTable): string {
    const state = this.#tables[table];
    const names = this.chains(table);
    const lines = [`# Generated by memory-iptables`, `*${table}`];
    for (const name of names) lines.push(`:${name} ${state.get(name)?.policy ?? "-"} [0:0]`);
    for (const name of names) {
      for (const { text } of state.get(name)?.rules ?? [])
        lines.push(text === "" ? `-A ${name}` : `-A ${name} ${text}`);
    }
    lines.push("COMMIT", "# Completed", "");
    return lines.join("\n");
  }

  /** Names of all chains in the order of {@link MemoryIptables.dump}. */
  chains(table: IptablesTable): string[] {
    const builtIn: readonly string[] = BUILT_IN_CHAINS[table];
    const others = [...this.#tables[table].keys()].filter((name) => !builtIn.includes(name));
    return [...builtIn, ...others.sort()];
  }

  /** The rules of a chain; empty if there is no such chain. */
  rules(table: IptablesTable, chain: string): readonly KernelRule[] {
    return this.#tables[table].get(chain)?.rules.map(({ rule }) => rule) ?? [];
  }

  /** What another program's `iptables -t TABLE -F` does, and with `deleteChains` its `-X` too. */
  flush(table: IptablesTable, options: { readonly deleteChains?: boolean } = {}): void {
    const draft = this.#begin(table);
    for (const name of this.chains(table)) draft.flush(name);
    if (options.deleteChains === true) {
      for (const name of this.chains(table).slice(BUILT_IN_CHAINS[table].length)) draft.deleteChain(name);
    }
    this.#commit(draft);
  }

  /** Names of the IP sets that rules refer to: the kernel destroys none of these. */
  setsInUse(): Set<string> {
    const names = new Set<string>();
    for (const state of Object.values(this.#tables)) {
      for (const { rules } of state.values()) {
        for (const { rule } of rules) for (const match of rule.matches) if (match.kind === "set") names.add(match.name);
      }
    }
    return names;
  }

  #hasRule(table: IptablesTable, chain: string, args: readonly string[]): boolean {
    const { identity } = storedRuleOfWords(args, this.family);
    return this.#tables[table].get(chain)?.rules.some((stored) => stored.identity === identity) ?? false;
  }

  #begin(table: IptablesTable): TableDraft {
    return new TableDraft(table, this.#tables[table], this.#objects);
  }

  #commit(draft: TableDraft): void {
    this.#tables[draft.table] = draft.commit();
    this.#generation += 1;
  }

  /** Runs one rule command. */
  #change(operation: string, table: IptablesTable, edit: (draft: TableDraft) => void): void {
    const command = `iptables ${operation} -t ${table}`;
    if (this.isLocked) throw new IptablesError("lock_held", command, 4, LOCK_MESSAGE);
    try {
      const draft = this.#begin(table);
      edit(draft);
      this.#commit(draft);
    } catch (error) {
      if (error instanceof RuleSyntaxError) throw new IptablesError("failed", command, 2, error.message);
      if (!(error instanceof Refusal)) throw error;
      const code = /No chain|does not exist/.test(error.message) ? "not_found" : "failed";
      throw new IptablesError(code, command, 1, `iptables: ${error.message}.`);
    }
  }
}
