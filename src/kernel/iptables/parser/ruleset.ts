/**
 * Reads the output of `iptables-save`. Keeps rules as printed text, because most belong to other programs or need no
 * parsing: `rule-parts.ts` finds single parts, `rule-syntax.ts` parses whole rules.
 */
import type { IpFamily } from "../../../net/ip.ts";
import { targetOf } from "./rule-parts.ts";

export interface SavedChain {
  /** `ACCEPT` or `DROP` for built-in chains; undefined for others. */
  readonly policy: string | undefined;
  /** Without `-A CHAIN` and counters. */
  readonly rules: readonly string[];
}

/** Chains by name, in the order in which they were printed. */
export type SavedTable = ReadonlyMap<string, SavedChain>;

/** The rules of a chain, as texts that may be built on demand. */
export interface RuleTexts {
  readonly length: number;
  /** Without `-A CHAIN` and counters; undefined if there is none, or none that the packets can match. */
  at(index: number): string | undefined;
  /** The only address, or `:` and the only port, that the rule's packets can go to; undefined: any. @default parse the text */
  destinationAt?(index: number): string | undefined;
}

/** The destination of a rule that matches no packet. */
export const NOWHERE = "";

/** Chains as in {@link SavedChain}, or from a plan. */
export type TableTexts = ReadonlyMap<string, ReadonlyMap<string, ChainTexts>>;

export interface ChainTexts {
  readonly policy: string | undefined;
  readonly rules: RuleTexts;
}

type OpenTable = Map<string, { readonly policy: string | undefined; readonly rules: string[] }>;

/** Visits a dump in order. Each method returns whether to continue with the rest of the table. */
interface SavedVisitor {
  readonly table: (name: string) => boolean;
  readonly chain: (name: string, policy: string | undefined) => boolean;
  readonly rule: (chain: string, rule: string) => boolean;
}

/** Parses every table of a dump; keys are table names. */
export function readRuleset(saved: string): ReadonlyMap<string, SavedTable> {
  const tables = new Map<string, OpenTable>();
  let table: OpenTable = new Map();
  visitSaved(saved, {
    table(name) {
      table = new Map();
      tables.set(name, table);
      return true;
    },
    chain(name, policy) {
      table.set(name, { policy, rules: [] });
      return true;
    },
    rule(chain, rule) {
      table.get(chain)?.rules.push(rule);
      return true;
    },
  });
  return tables;
}

/** Parses one table of a dump; no chains if the dump does not have it. */
export function readTable(saved: string, table: string): SavedTable {
  return readRuleset(saved).get(table) ?? new Map();
}

/** The chains of a table, in print order. Skips the rules after them. */
export function readChainNames(saved: string, table: string): readonly string[] {
  const names: string[] = [];
  visitSaved(saved, {
    table: (name) => name === table,
    chain: (name) => names.push(name) > 0,
    rule: () => false,
  });
  return names;
}

/**
 * For every chain of a table, the number of its rules plus the number of rules that jump to it. Stores no rule and does
 * one chain lookup per jump: a table may have a quarter of a million rules.
 */
export function readChainUses(saved: string, table: string): ReadonlyMap<string, number> {
  /** By chain its index in `uses`, and finally its count. */
  const chains = new Map<string, number>();
  const uses: number[] = [];
  let last = "";
  let place = 0;
  visitSaved(saved, {
    table: (name) => name === table,
    chain(name) {
      chains.set(name, uses.length);
      return uses.push(0) > 0;
    },
    rule(chain, rule) {
      if (chain !== last) place = chains.get(chain) ?? uses.push(0) - 1;
      last = chain;
      uses[place] = (uses[place] ?? 0) + 1;
      const target = targetOf(rule);
      // Targets that are not chains of the table (DNAT, …) do not count.
      const targetPlace = target === undefined ? undefined : chains.get(target);
      if (targetPlace !== undefined) uses[targetPlace] = (uses[targetPlace] ?? 0) + 1;
      return true;
    },
  });
  for (const [chain, its] of chains) chains.set(chain, uses[its] ?? 0);
  return chains;
}

const APPEND = "-A ";

function visitSaved(saved: string, visitor: SavedVisitor): void {
  let isWanted = false;
  /** The previous rule's chain and prefix: most rules follow one of the same chain. */
  let chain = "";
  let beginning: string | undefined;
  for (let start = 0, end = 0; start < saved.length; start = end + 1) {
    const newline = saved.indexOf("\n", start);
    end = newline < 0 ? saved.length : newline;
    const first = saved[start];
    if (first === "*") isWanted = visitor.table(saved.slice(start + 1, end).trim());
    if (!isWanted) continue;
    if (first === ":") {
      const [name = "", policy = "-"] = saved.slice(start + 1, end).split(" ", 2);
      isWanted = visitor.chain(name, policy === "-" ? undefined : policy);
    } else if (first === "-" || first === "[") {
      const counters = first === "[" ? saved.indexOf("] ", start) : start - 2;
      const command = counters + 2;
      if (counters < start - 2 || command > end) continue;
      if (beginning === undefined || !saved.startsWith(beginning, command)) {
        if (!saved.startsWith(APPEND, command)) continue;
        const from = command + APPEND.length;
        const blank = saved.indexOf(" ", from);
        chain = saved.slice(from, blank < 0 || blank > end ? end : blank);
        beginning = `${APPEND}${chain} `;
      }
      isWanted = visitor.rule(chain, saved.slice(command + beginning.length, end));
    }
  }
}

/** The family of a dump, by its header or its addresses; undefined if neither tells. */
export function savedFamily(text: string): IpFamily | undefined {
  const [, six] = /^# Generated by ip(6?)tables/m.exec(text) ?? [];
  if (six !== undefined) return six === "6" ? "IPv6" : "IPv4";
  // With -c, counters precede the rule.
  const address = /^(?:\[\d+:\d+\] )?-A [^"\n]*? (?:-[sd]|--to-\w+) \[?((?:[\da-f]+[.:]|::)[\da-f.:]*)/m.exec(
    text,
  )?.[1];
  if (address !== undefined) return /^[\da-f]*:/.test(address) ? "IPv6" : "IPv4";
  if (/icmp6-/.test(text)) return "IPv6";
  return /icmp-/.test(text) ? "IPv4" : undefined;
}

const PARTS = /^(?:# Generated by (ip6?tables)|\*(\S+)$)/gm;

/** Splits the text so that no part has a table twice: where a table repeats, or where the other family's tool begins. */
export function savesIn(text: string): string[] {
  const starts = [0];
  let tool: string | undefined;
  let tables = new Set<string>();
  let header: { readonly at: number; readonly tool: string } | undefined;
  for (const { index, 1: named, 2: table = "" } of text.matchAll(PARTS)) {
    if (named !== undefined) {
      header = { at: index, tool: named };
      continue;
    }
    if (tables.has(table) || (tables.size > 0 && header !== undefined && header.tool !== tool)) {
      starts.push(header?.at ?? index);
      tables = new Set();
    }
    tables.add(table);
    tool = header?.tool ?? tool;
    header = undefined;
  }
  return starts.map((start, index) => text.slice(start, starts[index + 1]));
}
