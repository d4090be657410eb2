/**
 * The reader of what `iptables-save` prints. Rules keep the text in which they were printed, for most of them belong to
 * others or need no closer look: `rule-parts.ts` finds single parts, `rule-syntax.ts` reads all of a rule. Pure.
 */

export interface SavedChain {
  /** `ACCEPT` or `DROP` for built-in chains; undefined for others. */
  readonly policy: string | undefined;
  /** Without `-A CHAIN` and counters. */
  readonly rules: readonly string[];
}

/** Chains by name, in the order in which they were printed. */
export type SavedTable = ReadonlyMap<string, SavedChain>;

type OpenTable = Map<string, { readonly policy: string | undefined; readonly rules: string[] }>;

/** Reads every table of a dump, by table name. */
export function readRuleset(saved: string): ReadonlyMap<string, SavedTable> {
  const tables = new Map<string, OpenTable>();
  let table: OpenTable = new Map();
  for (let start = 0; start < saved.length; ) {
    const newline = saved.indexOf("\n", start);
    const end = newline < 0 ? saved.length : newline;
    const line = saved.slice(start, end);
    start = end + 1;
    const first = line[0];
    if (first === "*") {
      table = new Map();
      tables.set(line.slice(1).trim(), table);
    } else if (first === ":") {
      const [name = "", policy = "-"] = line.slice(1).split(" ", 2);
      table.set(name, { policy: policy === "-" ? undefined : policy, rules: [] });
    } else if (first === "-" || first === "[") addRule(table, line);
  }
  return tables;
}

/** Reads a dump of this table; a dump that has another table only, or none, gives no chains. */
export function readTable(saved: string, table: string): SavedTable {
  return readRuleset(saved).get(table) ?? new Map();
}

const APPEND = "-A ";

function addRule(table: OpenTable, line: string): void {
  const command = line[0] === "[" ? line.indexOf("] ") + 2 : 0;
  if (!line.startsWith(APPEND, command)) return;
  const from = command + APPEND.length;
  const space = line.indexOf(" ", from);
  const nameEnd = space < 0 ? line.length : space;
  table.get(line.slice(from, nameEnd))?.rules.push(line.slice(nameEnd + 1));
}
