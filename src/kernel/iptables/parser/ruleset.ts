/**
 * The reader of what `iptables-save` prints. Rules keep the text in which they were printed, for most of them belong to
 * others or need no closer look: `rule-parts.ts` finds single parts, `rule-syntax.ts` reads all of a rule. Pure.
 */
import { targetOf } from "./rule-parts.ts";

export interface SavedChain {
  /** `ACCEPT` or `DROP` for built-in chains; undefined for others. */
  readonly policy: string | undefined;
  /** Without `-A CHAIN` and counters. */
  readonly rules: readonly string[];
}

/** Chains by name, in the order in which they were printed. */
export type SavedTable = ReadonlyMap<string, SavedChain>;

/** The rules of a chain, as texts that may be made when they are asked for. */
export interface RuleTexts {
  readonly length: number;
  /** Without `-A CHAIN` and counters; undefined: none is there, or none that the packets can meet. */
  at(index: number): string | undefined;
  /** The only address, or `:` and the only port, that packets go to that the rule is for; undefined: any. @default the text says it */
  destinationAt?(index: number): string | undefined;
}

/** The destination of a rule that no packet meets. */
export const NOWHERE = "";

/** Chains as {@link SavedChain} has them, or of a plan. */
export type TableTexts = ReadonlyMap<string, ReadonlyMap<string, ChainTexts>>;

export interface ChainTexts {
  readonly policy: string | undefined;
  readonly rules: RuleTexts;
}

type OpenTable = Map<string, { readonly policy: string | undefined; readonly rules: string[] }>;

/** Visits a dump in order. Each answers whether to go on with the rest of the table. */
interface SavedVisitor {
  readonly table: (name: string) => boolean;
  readonly chain: (name: string, policy: string | undefined) => boolean;
  readonly rule: (chain: string, rule: string) => boolean;
}

/** Reads every table of a dump, by table name. */
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

/** Reads a dump of this table; a dump that has another table only, or none, gives no chains. */
export function readTable(saved: string, table: string): SavedTable {
  return readRuleset(saved).get(table) ?? new Map();
}

/** The chains of a table, in the order in which they were printed. The rules that follow them are not read. */
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
 * For every chain of a table, the number of rules in it and of rules that go to it. Keeps no rule, and looks a chain up once for
 * each rule that goes there: a table may have a quarter of a million of them.
 */
export function readChainUses(saved: string, table: string): ReadonlyMap<string, number> {
  /** By chain its place in `uses`, and in the end what is there. */
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
      // Targets that are no chains of the table (DNAT, …) do not count.
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
  /** The chain of the rule before, and what a rule of it begins with: most rules follow one of the same chain. */
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

const PARTS = /^(?:# Generated by (ip6?tables)|\*(\S+)$)/gm;

/** The text in parts that each have a table once: where one comes again, or the tool of the other family begins, is another part. */
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
