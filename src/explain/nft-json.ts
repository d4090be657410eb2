/** What `nft -j list ruleset` prints, as the same inventory that its text is. Pure. */
import { DumpError, type Inventory, InventoryDraft } from "../inspect/dumps/inventory.ts";
import { isObject, type JsonObject, listOf, named, numberOf, textOf } from "../trace/nftables/json.ts";
import { expressionText, ruleText } from "../trace/nftables/rule-text.ts";

/** Whether a text is JSON of nft. */
export const isNftJson = (text: string): boolean => /^\s*\{\s*"nftables"/.test(text);

/** @param table the name of the tables to read; others are passed over. @throws DumpError for a text that is cut or something else */
export function readNftJson(text: string, table: string): Inventory {
  const draft = new InventoryDraft();
  for (const item of itemsOf(text)) {
    const found = named(item);
    const body = found !== undefined && isObject(found.body) ? found.body : {};
    const { family, name } = body;
    if (found?.name === "table" && name === table) draft.place(`${textOf(family)} ${table}`);
    if (body.table !== table) continue;
    const place = `${textOf(family)} ${table}`;
    if (found?.name === "rule") draft.add(place, textOf(body.chain) ?? "", lineOfRule(body));
    else if (found?.name === "chain" || found?.name === "set" || found?.name === "map") {
      hold(draft, found.name, place, body);
    }
  }
  return { ...draft.finish("nft"), unsaid: UNSAID };
}

/** Comments of chains, and the types of sets whose key is an expression, are not in JSON (nft 1.0 to 1.1). */
const UNSAID = /^(?:comment "|type(?:of)? (?!.* hook ))/;

function itemsOf(text: string): readonly unknown[] {
  try {
    const json: unknown = JSON.parse(text);
    return isObject(json) ? listOf(json.nftables) : [];
  } catch (error) {
    throw new DumpError(`it is cut, or no JSON: ${error instanceof Error ? error.message : error}`);
  }
}

function lineOfRule({ expr, comment }: JsonObject): string {
  const statements = listOf(expr).filter((one) => !isOwnCounter(one));
  return ruleText(statements, textOf(comment));
}

/** What a counter of a rule has counted says nothing about what was planned. */
function isOwnCounter(statement: unknown): boolean {
  const found = named(statement);
  return found?.name === "counter" && typeof found.body !== "string";
}

function hold(draft: InventoryDraft, kind: "chain" | "set" | "map", place: string, body: JsonObject): void {
  const name = textOf(body.name) ?? "";
  const isDynamic = listOf(body.flags).includes("dynamic");
  draft.hold({ kind, name, place, isOrdered: kind === "chain", isDynamic });
  for (const line of kind === "chain" ? headOfChain(body) : linesOfSet(body)) draft.add(place, name, line);
}

/** The names that nft prints for priorities (nft(8), "Standard priority names"); that of `dstnat` at one hook alone. */
const PRIORITIES: readonly (readonly [priority: number, name: string])[] = [
  [-300, "raw"],
  [-150, "mangle"],
  [-100, "dstnat"],
  [0, "filter"],
  [50, "security"],
  [100, "srcnat"],
];

function headOfChain({ type, hook, prio, policy }: JsonObject): string[] {
  if (hook === undefined) return [];
  const priority = priorityText(numberOf(prio) ?? 0, textOf(hook));
  return [`type ${textOf(type)} hook ${textOf(hook)} priority ${priority}; policy ${textOf(policy)};`];
}

/** A number up to ten beside a name is printed as a sum (libnftables, prio2str). */
function priorityText(priority: number, hook: string | undefined): string {
  const near = PRIORITIES.find(
    ([value, name]) => Math.abs(priority - value) <= 10 && (name !== "dstnat" || hook === "prerouting"),
  );
  if (near === undefined) return String(priority);
  const offset = priority - near[0];
  return offset === 0 ? near[1] : `${near[1]} ${offset < 0 ? "-" : "+"} ${Math.abs(offset)}`;
}

function linesOfSet({ flags, timeout, elem }: JsonObject): string[] {
  return [
    ...(flags === undefined ? [] : [`flags ${listOf(flags).join(",")}`]),
    ...(timeout === undefined ? [] : [`timeout ${durationText(numberOf(timeout) ?? 0)}`]),
    ...listOf(elem).map(elementLine),
  ];
}

/** Seconds as nft prints them: `3h`, `1m30s`. */
function durationText(seconds: number): string {
  const parts = [
    Math.floor(seconds / 86_400),
    Math.floor(seconds / 3_600) % 24,
    Math.floor(seconds / 60) % 60,
    seconds % 60,
  ];
  return parts.map((part, index) => (part === 0 ? "" : `${part}${"dhms"[index]}`)).join("");
}

function elementLine(element: unknown): string {
  const [key, data] = Array.isArray(element) ? element : [element];
  const inner = named(key);
  const comment = inner?.name === "elem" && isObject(inner.body) ? textOf(inner.body.comment) : undefined;
  const value = inner?.name === "elem" && isObject(inner.body) ? inner.body.val : key;
  const said = comment === undefined ? "" : ` comment "${comment}"`;
  return `${expressionText(value)}${said}${data === undefined ? "" : ` : ${expressionText(data)}`}`;
}
