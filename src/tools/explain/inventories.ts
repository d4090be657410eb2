/** What dumps list, as inventories: of the tools of a node, or of a plan that is printed likewise. */
import { type DumpKind, type Holder, type Inventory, InventoryDraft } from "../../contract/inspect/dumps/inventory.ts";
import { readRuleset } from "../../kernel/iptables/parser/ruleset.ts";
import { type JsonObject, listOf, missingElements, named, numberOf, textOf } from "../../kernel/nftables/json.ts";
import { durationText, elementLine, hookText, ruleText } from "../../kernel/nftables/json-text.ts";
import type { IpFamily } from "../../net/ip.ts";
import { type Dump, DumpError } from "../../trace/dump/recognise.ts";

/** The tool that printed a dump; undefined if no mode is compared with it. */
export function toolOf(dump: Dump): DumpKind | undefined {
  if (dump.kind === "chains") return dump.tool === "ipvsadm" ? dump.tool : undefined;
  if (dump.kind === "iptables") return "iptables-save";
  return dump.kind === "nftables" ? "nft" : dump.kind === "ipset" ? dump.kind : undefined;
}

interface DumpUse {
  /** Of iptables rules whose text does not tell. */
  readonly family: IpFamily | undefined;
  /** The name of the nftables tables to read, and rules must be whole. Undefined: all tables, and what is there of them. */
  readonly table: string | undefined;
}

/** @throws DumpError for what is cut, lacks a part or cannot be compared */
export function inventoryOf(dump: Dump, { family, table }: DumpUse): Inventory {
  if (dump.kind === "iptables") return ofIptables(dump, family, table);
  if (dump.kind === "nftables") return ofNft(dump, table);
  if (dump.kind === "ipset") return ofIpset(dump.text);
  if (dump.kind === "chains" && dump.tool === "ipvsadm") return ofIpvsadm(dump.text ?? "");
  throw new DumpError("it is not what iptables-save, nft list, ipset save or ipvsadm -S -n print");
}

/** Printed in place of a table that contains something from `nft` that the tool does not know. */
const UNREADABLE = /^# (Table `(?:nat|filter)' is incompatible.*)$/m;

function ofIptables(dump: Dump & { readonly kind: "iptables" }, given: IpFamily | undefined, only: string | undefined) {
  const { text, family = given, gaps: [gap] = [], isPart } = dump;
  if (isPart === true && only !== undefined)
    throw new DumpError("it has only some rules, without their table: give all that iptables-save prints");
  const [, said] = UNREADABLE.exec(text) ?? [];
  if (said !== undefined) throw new DumpError(`it lacks a table; the tool says: ${said}`);
  if (gap !== undefined) throw new DumpError(gap);
  if (family === undefined)
    throw new DumpError("it does not tell whether iptables or ip6tables printed it: add --family");
  const draft = new InventoryDraft();
  for (const [table, chains] of readRuleset(text)) {
    const place = `${family} ${table}`;
    draft.place(place);
    for (const [name, { policy, rules }] of chains) {
      const lines = rules.map((rule) => `-A ${name} ${spelled(rule)}`.trimEnd());
      draft.hold({ kind: "chain", place, name, isOrdered: true, isBuiltIn: policy !== undefined, lines });
    }
  }
  return draft.finish("iptables-save");
}

/** Removes what differs between versions: extra blanks, and the netmask of xt_recent. */
function spelled(rule: string): string {
  return rule
    .replaceAll(/ {2,}/g, " ")
    .replaceAll(/ --mask \S+ --rsource/g, "")
    .replaceAll(" --rsource", "");
}

const IPSET = "ipset";
const IPVS = "ipvs";

function ofIpset(text: string): Inventory {
  const draft = new InventoryDraft();
  draft.place(IPSET);
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "" || line.startsWith("#")) continue;
    const [, verb, name = "", rest = ""] = /^(create|add) (\S+) (\S+)/.exec(line) ?? [];
    if (verb === "create") draft.hold({ kind: "set", place: IPSET, name, isOrdered: false });
    // Sizes of the hash table differ from kernel to kernel; the type does not.
    if (verb === "create") draft.add(IPSET, name, `type ${rest}`);
    else if (verb === undefined || !draft.add(IPSET, name, rest)) {
      throw new DumpError(
        `line ${index + 1}: ${verb === undefined ? "this is not what ipset save prints" : `set ${name} is not created`}`,
      );
    }
  }
  return draft.finish(IPSET);
}

const OPTION = "(?:-t|-u|--tcp-service|--udp-service|--sctp-service)";
/** A virtual server for a firewall mark, which is never ours, or one of its real servers. */
const OF_MARK = /^-[Aa] (?:-f|--fwmark-service) /;
const VIRTUAL = new RegExp(String.raw`^-A (${OPTION}) (\S+)(.*)$`);
const REAL = new RegExp(String.raw`^-a (${OPTION}) (\S+) -r (\S+)(.*)$`);

function ofIpvsadm(text: string): Inventory {
  const draft = new InventoryDraft();
  draft.place(IPVS);
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "" || line.startsWith("#") || OF_MARK.test(line)) continue;
    const [, option, address = "", rest = ""] = VIRTUAL.exec(line) ?? [];
    if (option !== undefined) {
      const name = virtualServerName(option, address);
      draft.hold({ kind: "virtual server", place: IPVS, name, isOrdered: false });
      draft.add(IPVS, name, rest.trim());
      continue;
    }
    const [, realOption = "", realAddress = "", endpoint, settings = ""] = REAL.exec(line) ?? [];
    // A server of weight 0 gets no new connections: it keeps those of an endpoint that is gone.
    if (endpoint !== undefined && / -w 0\b/.test(settings)) continue;
    if (
      endpoint === undefined ||
      !draft.add(IPVS, virtualServerName(realOption, realAddress), `real server ${endpoint}`)
    ) {
      throw new DumpError(`line ${index + 1}: this is not what ipvsadm -S -n prints`);
    }
  }
  return draft.finish("ipvsadm");
}

/** `10.96.0.10:80/TCP`, as the program itself names it. */
function virtualServerName(option: string, address: string): string {
  const protocol = /^-t|tcp/.test(option) ? "TCP" : /^-u|udp/.test(option) ? "UDP" : "SCTP";
  return `${address}/${protocol}`;
}

function ofNft(
  { objects, gaps = [], ofIptables: isListing }: Dump & { readonly kind: "nftables" },
  only: string | undefined,
) {
  const [missing] = missingElements(objects);
  const gap = gaps.find((one) => one !== missing);
  if (gap !== undefined && only !== undefined) throw new DumpError(gap);
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
  const inventory = { ...draft.finish("nft"), ...(missing !== undefined && { missing }) };
  return isListing === undefined ? { ...inventory, unsaid: UNSAID } : inventory;
}

/** JSON lacks the comments of chains and the types of sets whose key is an expression (nft 1.0 to 1.1). */
const UNSAID = /^(?:comment "|type(?:of)? (?!.* hook ))/;

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

/** Joins inventories of the same kind. */
export function merged(kind: DumpKind, parts: readonly Inventory[]): Inventory {
  const holders = new Map<string, Holder>();
  for (const part of parts) for (const [key, holder] of part.holders) holders.set(key, holder);
  const { unsaid } = parts.find((part) => part.unsaid !== undefined) ?? {};
  const places = new Set(parts.flatMap((part) => [...part.places]));
  return { kind, places, holders, ...(unsaid !== undefined && { unsaid }) };
}
