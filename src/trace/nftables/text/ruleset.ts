/** What `nft list ruleset` prints, as the objects of `nft -j list ruleset`: tables, chains, sets, maps and rules. */
import { constantOf, readElements, secondsOf } from "./expression.ts";
import { readRule } from "./rule.ts";
import { NftTextError, unquoted, WordReader, wordsOf } from "./words.ts";

/** nft's names of priorities (nft(8)); bridges have others. */
const PRIORITIES: Readonly<Record<string, number>> = {
  ...{ raw: -300, mangle: -150, dstnat: -100, filter: 0, security: 50, srcnat: 100 },
};
/** Above it, rules of iptables stand, of which nft's text leaves parts out. */
const OF_IPTABLES = /^# Warning: table (\S+) (\S+) is managed by iptables-nft/;
const BLOCK = /^(\S+(?: \S+)*?) ?\{$/;

interface OpenTable {
  readonly family: string;
  readonly table: string;
  readonly isOfIptables: boolean;
}

/** Reads a listing. @throws NftTextError with the number of the line */
export function readNftText(text: string): readonly unknown[] {
  const objects: unknown[] = [];
  const lines = text.split("\n");
  const ofIptables = new Set<string>();
  let table: OpenTable | undefined;
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at]?.trim() ?? "";
    const [, family, name] = OF_IPTABLES.exec(line) ?? [];
    if (family !== undefined) ofIptables.add(`${family} ${name}`);
    if (line === "" || line.startsWith("#")) continue;
    try {
      if (table === undefined) {
        table = openTable(line, ofIptables);
        objects.push({ table: { family: table.family, name: table.table } });
      } else if (line === "}") table = undefined;
      else if (BLOCK.test(withoutHandle(line))) {
        const end = endOfBlock(lines, at);
        objects.push(...block(table, withoutHandle(line), lines.slice(at + 1, end)));
        at = end;
      }
    } catch (error) {
      if (!(error instanceof NftTextError)) throw error;
      throw new NftTextError(`line ${at + 1}: ${error.message}`);
    }
  }
  if (table !== undefined) throw new NftTextError(`it is cut: the table ${table.family} ${table.table} does not end`);
  return objects;
}

function openTable(line: string, ofIptables: ReadonlySet<string>): OpenTable {
  const [, family, table] = /^table (\S+) (\S+) \{$/.exec(withoutHandle(line)) ?? [];
  if (family === undefined || table === undefined) throw new NftTextError("a table was expected");
  return { family, table, isOfIptables: ofIptables.has(`${family} ${table}`) };
}

/** `nft -a` puts the number of each object behind it. */
function withoutHandle(line: string): string {
  return line.replace(/ # handle \d+$/, "");
}

/** The line that closes what begins here. */
function endOfBlock(lines: readonly string[], start: number): number {
  const indent = /^\s*/.exec(lines[start] ?? "")?.[0] ?? "";
  for (let at = start + 1; at < lines.length; at += 1) if (lines[at] === `${indent}}`) return at;
  throw new NftTextError("it is cut: what begins here does not end");
}

function block(table: OpenTable, head: string, lines: readonly string[]): unknown[] {
  const [kind = "", name = ""] = head.split(" ");
  const place = { family: table.family, table: table.table };
  if (kind === "chain") return chain(table, unquoted(name), lines);
  if (kind !== "set" && kind !== "map") return [];
  return [{ [kind]: { ...place, name: unquoted(name), ...setBody(lines) } }];
}

const HOOK = /^type (\S+) hook (\S+) (?:.*? )?priority (\S+?)(?: ([+-]) (\d+))?; policy (\w+);/;

function chain({ family, table, isOfIptables }: OpenTable, name: string, lines: readonly string[]): unknown[] {
  const place = { family, table };
  let head: object = { ...place, name };
  const rules: unknown[] = [];
  for (const raw of lines) {
    const line = withoutHandle(raw.trim());
    const [, type, hook, word = "", sign, digits = "0", policy] = HOOK.exec(line) ?? [];
    if (type !== undefined) {
      const base = PRIORITIES[word] ?? Number(word);
      head = { ...head, type, hook, prio: base + (sign === "-" ? -1 : 1) * Number(digits), policy };
    } else if (line !== "" && !line.startsWith("#") && !line.startsWith("comment ")) {
      const { expr, ...rest } = readRule(new WordReader(wordsOf(line)));
      const left: readonly unknown[] = isOfIptables ? [{ xt: { type: "match", name: "of iptables" } }] : [];
      rules.push({ rule: { ...place, chain: name, ...rest, expr: [...left, ...expr] } });
    }
  }
  return [{ chain: head }, ...rules];
}

/** What lookups need: flags, elements. */
function setBody(lines: readonly string[]): object {
  const body: Record<string, unknown> = {};
  const words = new WordReader(wordsOf(lines.join("\n")));
  while (!words.isAtEnd) {
    const word = words.next();
    if (word === "flags") {
      const flags = words.next().split(",");
      // A list of flags may have blanks.
      while (words.takes(",")) flags.push(...words.next().split(","));
      body.flags = flags;
    } else if (word === "timeout") body.timeout = secondsOf(words.next());
    else if (word === "size") body.size = constantOf(words.next());
    else if (word === "comment") body.comment = unquoted(words.next());
    else if (word === "elements") {
      words.expect("=");
      body.elem = readElements(words);
    }
  }
  return body;
}
