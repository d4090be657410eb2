/** Reads the output of `nft list table` and `nft list ruleset`. */
import { DumpError, type Inventory, InventoryDraft } from "./inventory.ts";

/**
 * @param table the name of the tables to read; others are skipped.
 * @throws DumpError if the text is truncated or something else.
 */
export function readNftList(text: string, table: string): Inventory {
  const draft = new InventoryDraft();
  /** `ip kube-proxy`; undefined between tables. */
  let place: string | undefined;
  let block: Block | undefined;
  /** How many blocks of another kind, or in another program's table, are open. */
  let otherDepth = 0;
  /** The part of a list of elements read so far. */
  let elements = "";
  for (const [index, raw] of text.split("\n").entries()) {
    const line = raw.trim();
    if (line === "" || line.startsWith("#")) continue;
    if (otherDepth > 0) otherDepth += line.endsWith("{") ? 1 : line === "}" ? -1 : 0;
    else if (place === undefined) {
      const [, family, name] = /^table (\S+) (\S+) \{/.exec(line) ?? [];
      if (family === undefined)
        throw new DumpError(`line ${index + 1}: expected "table FAMILY NAME {": this is not what nft list prints`);
      if (name !== table) {
        otherDepth = 1;
        continue;
      }
      place = `${family} ${name}`;
      draft.place(place);
    } else if (block === undefined) {
      block = blockOf(line);
      if (block !== undefined) continue;
      if (line === "}") place = undefined;
      else if (line.endsWith("{")) otherDepth = 1;
    } else if (elements !== "" || line.startsWith("elements = {")) {
      elements += ` ${line}`;
      if (!line.endsWith("}")) continue;
      block.lines.push(...elementsOf(elements.trimStart()));
      elements = "";
    } else if (line === "}") {
      const isDynamic = block.lines.some((own) => /^flags .*\bdynamic\b/.test(own));
      draft.hold({ ...block, place, isOrdered: block.kind === "chain", isDynamic });
      block = undefined;
    } else block.lines.push(spelled(line));
  }
  if (place !== undefined || otherDepth > 0) throw new DumpError("it is cut: a block does not end");
  return draft.finish("nft");
}

interface Block {
  readonly kind: "chain" | "set" | "map";
  readonly name: string;
  readonly lines: string[];
}

function blockOf(line: string): Block | undefined {
  const [, kind, name] = /^(chain|set|map) (\S+) \{$/.exec(line) ?? [];
  if (name === undefined || (kind !== "chain" && kind !== "set" && kind !== "map")) return undefined;
  return { kind, name, lines: [] };
}

/** Set elements, one line each, without timeouts and counters, which no plan contains. */
function elementsOf(text: string): string[] {
  const list = text.replace(/^elements = \{\s*/, "").replace(/\s*\}$/, "");
  // A comma inside quotes belongs to a comment.
  const members = list.match(/(?:"[^"]*"|[^",])+/g) ?? [];
  return members
    .map((member) => spelled(member.trim()).replaceAll(/ (?:timeout|expires) \S+/g, ""))
    .filter((member) => member !== "");
}

function spelled(line: string): string {
  return line
    .replaceAll(/\s+/g, " ")
    .replaceAll(/ ?counter packets \d+ bytes \d+/g, "")
    .replace(/ # handle \d+$/, "");
}
