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
  for (const line of linesOf(saved)) {
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

/** The chains of a table, in the order in which they were printed. The rules that follow them are not read. */
export function readChainNames(saved: string, table: string): readonly string[] {
  const names: string[] = [];
  let isInTable = false;
  for (const line of linesOf(saved)) {
    if (line[0] === "*") isInTable = line.slice(1).trim() === table;
    else if (!isInTable) continue;
    else if (line[0] === ":") names.push(line.slice(1, line.indexOf(" ")));
    else break;
  }
  return names;
}

function* linesOf(text: string): Generator<string> {
  for (let start = 0; start < text.length; ) {
    const newline = text.indexOf("\n", start);
    const end = newline < 0 ? text.length : newline;
    yield text.slice(start, end);
    start = end + 1;
  }
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
