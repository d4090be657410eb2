/** Reads what nft lists, as text or JSON, into an inventory. */
import { DumpError, type Inventory, InventoryDraft } from "../../contract/inspect/dumps/inventory.ts";
import {
  isObject,
  type JsonObject,
  listOf,
  missingElements,
  named,
  numberOf,
  textOf,
} from "../../kernel/nftables/json.ts";
import { durationText, elementLine, hookText, ruleText } from "../../kernel/nftables/json-text.ts";
import { readListing } from "../../kernel/nftables/listing/listing.ts";

/** Whether a text is JSON from nft. */
export const isNftJson = (text: string): boolean => /^\s*\{\s*"nftables"/.test(text);

/**
 * @param table the name of the tables to read, which must be whole; undefined: all tables, and what is there of them.
 * @throws DumpError if the text is truncated or something else
 */
export function readNft(text: string, table: string | undefined): Inventory {
  const isJson = isNftJson(text);
  const { objects, gaps } = isJson ? { objects: itemsOf(text), gaps: [] } : readListing(text.replaceAll("\r\n", "\n"));
  const [gap] = gaps;
  if (gap !== undefined && table !== undefined) throw new DumpError(gap);
  const [missing] = missingElements(objects);
  const inventory = { ...inventoryOf(objects, table), ...(missing !== undefined && { missing }) };
  return isJson ? { ...inventory, unsaid: UNSAID } : inventory;
}

function inventoryOf(objects: readonly unknown[], only: string | undefined): Inventory {
  const draft = new InventoryDraft();
  for (const item of objects) {
    const { name: kind, fields: body } = named(item);
    const { family, name } = body;
    const table = textOf(kind === "table" ? name : body.table);
    if (table === undefined || table !== (only ?? table)) continue;
    const place = `${textOf(family)} ${table}`;
    if (kind === "table") draft.place(place);
    if (kind === "rule") draft.add(place, textOf(body.chain) ?? "", lineOfRule(body));
    else if (kind === "chain" || kind === "set" || kind === "map") {
      const isDynamic = listOf(body.flags).includes("dynamic");
      const lines = linesOf(kind, body);
      draft.hold({ kind, name: textOf(name) ?? "", place, isOrdered: kind === "chain", isDynamic, lines });
    }
  }
  return draft.finish("nft");
}

/** JSON lacks the comments of chains and the types of sets whose key is an expression (nft 1.0 to 1.1). */
const UNSAID = /^(?:comment "|type(?:of)? (?!.* hook ))/;

function itemsOf(text: string): readonly unknown[] {
  try {
    const json: unknown = JSON.parse(text);
    return isObject(json) ? listOf(json.nftables) : [];
  } catch (error) {
    throw new DumpError(`it is cut, or no JSON: ${error instanceof Error ? error.message : error}`);
  }
}

function lineOfRule({ expr, comment, text }: JsonObject): string {
  if (typeof text === "string") return text;
  const statements = listOf(expr).filter((one) => !isOwnCounter(one));
  return ruleText(statements, textOf(comment));
}

/** The value of a rule's counter is not part of a plan. */
function isOwnCounter(statement: unknown): boolean {
  const found = named(statement);
  return found.name === "counter" && typeof found.body !== "string";
}

function linesOf(kind: string, body: JsonObject): string[] {
  const { flags, timeout, elem, lines } = body;
  // What a listing has at the beginning of a chain or a set.
  if (Array.isArray(lines)) return [...lines.map(String), ...listOf(elem).map(elementLine)];
  if (kind === "chain") return [hookText(body) ?? []].flat();
  return [
    ...(flags === undefined ? [] : [`flags ${listOf(flags).join(",")}`]),
    ...(timeout === undefined ? [] : [`timeout ${durationText(numberOf(timeout) ?? 0)}`]),
    ...listOf(elem).map(elementLine),
  ];
}
