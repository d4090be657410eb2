/**
 * What `nft -j` leaves out of this kernel's rules, from the kernel itself: the options of iptables' matches and targets, expressions
 * that this nft does not know (with status 0, and only a line on stderr), and the flags of tables.
 */
import type { IpFamily } from "../../net/ip.ts";
import { ipsetNames } from "../ipset-names.ts";
import { type ExtensionData, extensionText, type SetNames } from "../iptables/extension-data.ts";
import { byteReader } from "../netlink/attributes.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../netlink/nfnetlink.ts";
import { isObject, type JsonObject, listOf } from "./json.ts";
import { NFT_TABLE_F_DORMANT } from "./wire/constants.ts";
import { type NftablesClient, openNftables } from "./wire/nftables-client.ts";
import { extension } from "./wire/objects.ts";

/** include/uapi/linux/netfilter.h */
const NFPROTO_INET = 1;
const FAMILIES = { ip: NFPROTO_IPV4, ip6: NFPROTO_IPV6, inet: NFPROTO_INET };
const OF_IPTABLES: Readonly<Record<string, IpFamily>> = { ip: "IPv4", ip6: "IPv6" };

interface KernelReading {
  /** As `family name`. */
  readonly dormant: ReadonlySet<string>;
  /** By `family table handle`. */
  readonly rules: ReadonlyMap<string, readonly Outline[]>;
  readonly sets?: SetNames;
}

type Outlines = Awaited<ReturnType<NftablesClient["ruleOutlines"]>>;
type Outline = NonNullable<Outlines[number]["expressions"]>[number];

/** The number of commits in this network namespace; undefined if it cannot be asked. */
export async function nftablesGeneration(): Promise<number | undefined> {
  await using client = openNftables();
  return (await client.generation().catch(() => undefined))?.id;
}

/** @throws NetlinkError */
export async function completedListing(objects: readonly unknown[], said: string) {
  await using client = openNftables();
  const [dormant, rules] = [new Set<string>(), new Map<string, readonly Outline[]>()];
  for (const [family, nfproto] of Object.entries(FAMILIES)) {
    for (const { name, flags = 0 } of await client.tables(nfproto))
      if ((flags & NFT_TABLE_F_DORMANT) !== 0) dormant.add(`${family} ${name}`);
    for (const { table, handle, expressions = [] } of await client.ruleOutlines(nfproto))
      rules.set(`${family} ${table} ${handle}`, expressions);
  }
  const hasSets = [...rules.values()].some((outlines) => outlines.some(isOfSet));
  return completed(objects, said, { dormant, rules, sets: hasSets ? await ipsetNames() : new Map() });
}

/** nft 1.0.6 has no JSON for a statement that fills a map, and prints its text in that place. */
const AS_TEXT = /^warning: stmt ops \S+ have no json callback$/;
const UNKNOWN = /^netlink: Error: unknown expression type '(.*)'$/;

/** @param said what nft printed to stderr. @returns the objects, and what is not read, in words */
export function completed(objects: readonly unknown[], said: string, { dormant, rules, sets }: KernelReading) {
  const complaints = said.split("\n").filter((line) => line !== "" && !line.startsWith("#") && !AS_TEXT.test(line));
  const unknown = new Set(complaints.flatMap((line) => UNKNOWN.exec(line)?.[1] ?? []));
  const met = new Set<string>();
  const unlisted = new Set(rules.keys());
  const found = objects.flatMap((object): unknown[] => {
    const { table, rule, metainfo } = isObject(object) ? object : {};
    // Its release decides how flags are read, and these are the kernel's.
    if (metainfo !== undefined) return [];
    if (isObject(table)) {
      const { flags: _, ...rest } = table;
      return [{ table: { ...rest, ...(dormant.has(`${table.family} ${table.name}`) && { flags: ["dormant"] }) } }];
    }
    if (!isObject(rule)) return [object];
    const key = `${rule.family} ${rule.table} ${rule.handle}`;
    const outlines = rules.get(key);
    unlisted.delete(key);
    const strange = (outlines ?? []).flatMap(({ name = "" }) => (unknown.has(name) ? [name] : []));
    for (const name of strange) met.add(name);
    const expr = [
      ...strange.map((name) => ({ opaque: `the expression ${name}` })),
      ...ofConnection(rule, outlines ?? []),
      ...withOptions(rule, outlines ?? [], sets),
    ];
    return [{ rule: { ...rule, expr } }];
  });
  const others = complaints.filter((line) => !met.has(UNKNOWN.exec(line)?.[1] ?? ""));
  const unread = [...new Set(others)].map((line) => `nft says: ${line}`);
  if (unlisted.size > 0) unread.push(`nft leaves out ${unlisted.size} of the kernel's rules`);
  return { objects: found, unread };
}

/** nft prints `ct protocol udp udp dport 53` without its beginning, and so as if only UDP met it: an ICMP error does, too. */
function ofConnection({ expr }: JsonObject, outlines: readonly Outline[]): readonly unknown[] {
  const text = JSON.stringify(expr);
  const count = outlines.filter(({ name }) => name === "ct").length;
  // nft 1.0.6 prints some statements as text.
  if (count <= (text.match(/"ct":|(?<!")\bct \w/g) ?? []).length) return [];
  const protocol = /"payload":\{"protocol":"(?!ip6?"|th")(\w+)"/.exec(text)?.[1];
  const of = { match: { op: "==", left: { ct: { key: "protocol" } }, right: protocol } };
  return [protocol === undefined ? { opaque: "the expression ct, which nft leaves out" } : of];
}

/** The statements of a rule, those of iptables with their options. */
function withOptions({ family, expr }: JsonObject, outlines: readonly Outline[], sets?: SetNames): readonly unknown[] {
  const ofIptables = outlines.filter(({ name }) => name === "match" || name === "target");
  const statements = listOf(expr);
  const isXt = (one: unknown) => isObject(one) && isObject(one.xt);
  const of = OF_IPTABLES[String(family)];
  if (of === undefined || statements.filter(isXt).length !== ofIptables.length) return statements;
  const next = ofIptables.values();
  return statements.map((one) => {
    if (!isObject(one) || !isObject(one.xt)) return one;
    const { name: type, data: bytes = new Uint8Array() } = next.next().value ?? {};
    const { name, revision = 0, data = new Uint8Array() } = extensionIn(bytes);
    const found: ExtensionData = { type: type === "match" ? type : "target", name: name ?? "", revision, data };
    const options = extensionText(found, of, sets);
    return options === undefined || name !== one.xt.name ? one : { xt: { ...one.xt, options } };
  });
}

const extensionIn = (bytes: Uint8Array) => extension.read(byteReader(bytes), 0, bytes.length);

function isOfSet({ name, data }: Outline): boolean {
  return name === "match" && data !== undefined && extensionIn(data).name === "set";
}
