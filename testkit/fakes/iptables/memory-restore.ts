/** Runs iptables-restore text on the in-memory kernel, line by line. */

import { IptablesRestoreError, type IptablesTable } from "../../../src/kernel/iptables/iptables.ts";
import { RuleSyntaxError } from "../../../src/kernel/iptables/parser/rule-options.ts";
import {
  checkChainName,
  type KernelRule,
  parseRule,
  parseRuleText,
  printRule,
} from "../../../src/kernel/iptables/parser/rule-syntax.ts";
import type { IpFamily } from "../../../src/net/ip.ts";
import { Refusal, type StoredRule, type TableDraft } from "./memory-table.ts";

/** Where the text takes effect. */
export interface RestoreTarget {
  readonly family: IpFamily;
  /** The back end whose error messages are imitated. */
  readonly backEnd: "nft" | "legacy";
  begin(table: IptablesTable): TableDraft;
  commit(draft: TableDraft): void;
}

const COMMAND = "iptables-restore";
const LINE = /^(?:\[\d+:\d+\][ \t]+)?(-[A-Z])[ \t]+(\S+)(?:[ \t]+(.*))?$/;
const CACHE_LIMIT = 50_000;

/** Parsed rules by text: histories of changes repeat the same few. */
const caches: Readonly<Record<IpFamily, Map<string, StoredRule>>> = { IPv4: new Map(), IPv6: new Map() };

/** Parses a rule. Throws RuleSyntaxError. */
export function storedRule(text: string, family: IpFamily): StoredRule {
  const cache = caches[family];
  const known = cache.get(text);
  if (known !== undefined) return known;
  const stored = intern(storedOf(parseRuleText(text, family)), cache);
  cache.set(text, stored);
  return stored;
}

/** Parses a rule from its unquoted words. Throws RuleSyntaxError. */
export function storedRuleOfWords(words: readonly string[], family: IpFamily): StoredRule {
  return storedOf(parseRule(words, family));
}

function storedOf(rule: KernelRule): StoredRule {
  return { rule, text: printRule(rule), identity: ruleIdentity(rule) };
}

function intern(stored: StoredRule, cache: Map<string, StoredRule>): StoredRule {
  if (cache.size >= CACHE_LIMIT) cache.clear();
  const known = cache.get(stored.identity);
  if (known !== undefined) return known;
  cache.set(stored.identity, stored);
  return stored;
}

/**
 * Runs a payload. Throws {@link IptablesRestoreError}, with the line if the imitated tool would name it; the table at
 * fault and later ones are then unchanged.
 * @param only the table to apply; others are skipped.
 */
export function runRestore(payload: Iterable<string>, target: RestoreTarget, only?: IptablesTable): void {
  const run = new RestoreRun(target, only);
  let rest = "";
  for (const chunk of payload) {
    const text = rest === "" ? chunk : rest + chunk;
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      run.line(text.slice(start, end));
      start = end + 1;
    }
    rest = text.slice(start);
  }
  if (rest !== "") run.line(rest);
  run.end();
}

class RestoreRun {
  readonly #target: RestoreTarget;
  readonly #only: IptablesTable | undefined;
  #number = 0;
  #draft: TableDraft | undefined;
  #isSkipping = false;

  constructor(target: RestoreTarget, only: IptablesTable | undefined) {
    this.#target = target;
    this.#only = only;
  }

  line(text: string): void {
    this.#number += 1;
    if (text === "" || text.startsWith("#")) return;
    try {
      this.#run(text);
    } catch (error) {
      throw this.#refused(error);
    }
  }

  end(): void {
    if (this.#draft === undefined && !this.#isSkipping) return;
    const output = `${COMMAND}: COMMIT expected at line ${this.#number + 1}`;
    throw new IptablesRestoreError("failed", COMMAND, 1, output, undefined);
  }

  #run(text: string): void {
    if (text.startsWith("*")) {
      if (this.#draft !== undefined || this.#isSkipping) throw new Refusal("", "both");
      const table = tableName(text.slice(1).trim());
      if (this.#only === undefined || this.#only === table) this.#draft = this.#target.begin(table);
      else this.#isSkipping = true;
      return;
    }
    if (text.trimEnd() === "COMMIT" && (this.#draft !== undefined || this.#isSkipping)) {
      if (this.#draft !== undefined) this.#target.commit(this.#draft);
      this.#draft = undefined;
      this.#isSkipping = false;
      return;
    }
    if (this.#isSkipping) return;
    if (this.#draft === undefined) throw new Refusal("", "both");
    if (text.startsWith(":")) {
      const [name = "", policy = ""] = text
        .slice(1)
        .trim()
        .split(/[ \t]+/);
      this.#draft.declareChain(name, policy);
    } else this.#command(this.#draft, text);
  }

  #command(draft: TableDraft, text: string): void {
    const [, operation, chain = "", rest = ""] = LINE.exec(text) ?? [];
    const { family } = this.#target;
    switch (operation) {
      case "-A":
        checkChainName(chain);
        draft.addRule(chain, storedRule(rest, family));
        return;
      case "-I": {
        const [, position, spec = ""] = /^(?:(\d+)(?:[ \t]+|$))?(.*)$/.exec(rest) ?? [];
        draft.addRule(chain, storedRule(spec, family), position === undefined ? 0 : Number(position) - 1);
        return;
      }
      case "-D":
        if (/^\d+[ \t]*$/.test(rest)) draft.deleteRuleAt(chain, Number(rest) - 1);
        else draft.deleteRule(chain, storedRule(rest, family).identity);
        return;
      case "-N":
        draft.createChain(chain);
        return;
      case "-F":
        draft.flush(chain);
        return;
      case "-X":
        draft.deleteChain(chain);
        return;
      default:
        throw new RuleSyntaxError("bad_argument", `the line ${JSON.stringify(text)} is not understood`);
    }
  }

  #refused(error: unknown): unknown {
    const at = this.#number;
    if (error instanceof RuleSyntaxError) {
      const output = `${COMMAND}: ${error.message}\nError occurred at line: ${at}`;
      return new IptablesRestoreError("failed", COMMAND, 2, output, at);
    }
    if (!(error instanceof Refusal)) return error;
    const isNamed = error.namedBy === "both" || error.namedBy === this.#target.backEnd;
    const output = `${COMMAND}: line ${at} failed${error.message === "" ? "" : `: ${error.message}.`}`;
    return new IptablesRestoreError("failed", COMMAND, 1, output, isNamed ? at : undefined);
  }
}

function tableName(name: string): IptablesTable {
  if (name === "filter" || name === "nat" || name === "mangle") return name;
  throw new RuleSyntaxError("bad_argument", `table name '${name}' invalid`);
}

/**
 * Equal for two rules exactly if `-D` and `-C` of the real tools take one for the other: the printed form, and what
 * does not show in it.
 */
export function ruleIdentity(rule: KernelRule): string {
  const text = printRule(rule);
  const hidden = rule.matches.some((match) => match.kind === "recent" && match.hasDefaultMask);
  return hidden ? `${text} (default mask)` : text;
}
