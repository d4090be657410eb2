/** Reads what `nft list table` and `nft list ruleset` print. Pure. */
import { DumpError, type Inventory, InventoryDraft } from "./inventory.ts";

/**
 * @param table the name of the tables to read; others are passed over.
 * @throws DumpError for a text that is cut or is something else.
 */
export function readNftList(text: string, table: string): Inventory {
  const reader = new NftListReader(table);
  for (const [index, raw] of text.split("\n").entries()) {
    const line = raw.trim();
    if (line !== "" && !line.startsWith("#")) reader.read(line, index + 1);
  }
  return reader.finish();
}

interface Block {
  readonly kind: "chain" | "set" | "map";
  readonly name: string;
  readonly lines: string[];
}

class NftListReader {
  readonly #table: string;
  readonly #draft = new InventoryDraft();
  /** `ip kube-proxy`; undefined between tables. */
  #place: string | undefined;
  #block: Block | undefined;
  /** Blocks of another kind, or of another program's table, that are open. */
  #otherDepth = 0;
  /** What has been read of a list of elements. */
  #elements: string | undefined;

  constructor(table: string) {
    this.#table = table;
  }

  read(line: string, number: number): void {
    if (this.#otherDepth > 0) this.#skip(line);
    else if (this.#place === undefined) this.#beginTable(line, number);
    else if (this.#block === undefined) this.#readTable(line);
    else this.#readBlock(this.#block, line);
  }

  finish(): Inventory {
    if (this.#place !== undefined || this.#otherDepth > 0) throw new DumpError("it is cut: a block does not end");
    return this.#draft.finish("nft");
  }

  #skip(line: string): void {
    if (line.endsWith("{")) this.#otherDepth++;
    else if (line === "}") this.#otherDepth--;
  }

  #beginTable(line: string, number: number): void {
    const [, family, name] = /^table (\S+) (\S+) \{/.exec(line) ?? [];
    if (family === undefined) {
      throw new DumpError(`line ${number}: expected "table FAMILY NAME {": this is not what nft list prints`);
    }
    if (name !== this.#table) {
      this.#otherDepth = 1;
      return;
    }
    this.#place = `${family} ${name}`;
    this.#draft.place(this.#place);
  }

  #readTable(line: string): void {
    const [, kind, name] = /^(chain|set|map) (\S+) \{$/.exec(line) ?? [];
    if (name !== undefined && (kind === "chain" || kind === "set" || kind === "map")) {
      this.#block = { kind, name, lines: [] };
    } else if (line === "}") this.#place = undefined;
    else if (line.endsWith("{")) this.#otherDepth = 1;
  }

  #readBlock(block: Block, line: string): void {
    if (this.#elements !== undefined || line.startsWith("elements = {")) {
      const elements = this.#elements === undefined ? line : `${this.#elements} ${line}`;
      const isWhole = line.endsWith("}");
      if (isWhole) block.lines.push(...elementsOf(elements));
      this.#elements = isWhole ? undefined : elements;
    } else if (line === "}") this.#endBlock(block);
    else block.lines.push(spelled(line));
  }

  #endBlock({ kind, name, lines }: Block): void {
    const place = this.#place ?? "";
    const isDynamic = lines.some((line) => /^flags .*\bdynamic\b/.test(line));
    this.#draft.hold({ kind, name, place, isOrdered: kind === "chain", isDynamic });
    for (const line of lines) this.#draft.add(place, name, line);
    this.#block = undefined;
  }
}

/** Members, one line each. Times that run, and counters, say nothing about what was planned. */
function elementsOf(text: string): string[] {
  const list = text.replace(/^elements = \{\s*/, "").replace(/\s*\}$/, "");
  // A comma within quotes belongs to a comment.
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
