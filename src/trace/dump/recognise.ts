/** Tells which tool printed a dump, by its text, and whether it is complete. */

import { listedRules } from "../../kernel/iptables/parser/listed-rules.ts";
import { savedFamily, savesIn, type TableTexts } from "../../kernel/iptables/parser/ruleset.ts";
import { savedGaps } from "../../kernel/iptables/parser/saved-gaps.ts";
import type { KernelVersion } from "../../kernel/kernel-version.ts";
import type { HookEntry } from "../../kernel/netfilter-hooks.ts";
import { isObject, type JsonObject, missingElements } from "../../kernel/nftables/json.ts";
import { isListing, type Listing, readListing } from "../../kernel/nftables/listing/listing.ts";
import type { ChainEvent } from "../../kernel/nftables/nftables.ts";
import type { WaysPast } from "../../kernel/route/devices.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import type { ListedClients, RememberedLists } from "../iptables/surroundings.ts";
import type { BaseChain } from "../netfilter/program.ts";
import type { TraceNode, WalkOptions } from "../netfilter/tree.ts";

import type { Packet } from "../packet.ts";
import type { Question } from "../question.ts";

/** All objects that nft listed. */
export const listedObjects = (dumps: readonly Dump[]): readonly unknown[] =>
  dumps.flatMap((dump) => (dump.kind === "nftables" ? dump.objects : []));

/** The bodies of the objects of a kind: `chain`, `rule`, `table`. */
export const bodiesOf = (objects: readonly unknown[], kind: string): readonly JsonObject[] =>
  objects.map((object) => (isObject(object) ? object[kind] : undefined)).filter(isObject);

export type Dump =
  /** `family` is undefined if the text does not tell. `isPart`: rules without their table, of which others are missing. */
  | {
      readonly kind: "iptables";
      readonly family: IpFamily | undefined;
      readonly text: string;
      readonly isPart?: boolean;
      /** What of it is cut, or is not of iptables-save. */
      readonly gaps?: readonly string[];
    }
  /** The same, parsed: the text of a rule may be produced on demand. */
  | { readonly kind: "iptables-tables"; readonly tables: TableTexts }
  /** The contents of `-m recent` lists. */
  | { readonly kind: "recent"; readonly lists: ListedClients }
  /** `kernel`: the version of the one that was asked, if known. */
  | ({ readonly kind: "nftables"; readonly kernel?: KernelVersion | undefined } & Pick<Listing, "objects"> &
      Partial<Listing>)
  | { readonly kind: "ipset"; readonly text: string }
  /**
   * What a mode has besides rules: virtual servers, BPF programs at sockets, and the proxy's own sockets. `clients`: the remembered
   * clients, if known; `ownSockets`: match packets sent straight to sockets that only rules should lead to.
   */
  | {
      readonly kind: "chains";
      readonly ownSockets?: readonly Question[];
      chains(facts: NodeFacts, clients: RememberedLists | undefined): readonly BaseChain[];
      /** Addresses that it adds to the node. @default none */
      readonly addresses?: readonly IpAddress[];
      /** The tool that printed it, and its output. */
      readonly tool?: string;
      readonly text?: string;
    }
  /** A system without hooks, which walks the whole path of a packet itself. */
  | { readonly kind: "walker"; walk(packet: Packet, facts: NodeFacts, options: WalkOptions): TraceNode }
  /** What the kernel calls for packets, in calling order within each hook. */
  | { readonly kind: "hooks"; readonly entries: readonly HookEntry[] }
  /** What a daemon has seen of nftables' base chains. */
  | { readonly kind: "history"; readonly events: readonly ChainEvent[] }
  /** Rules that are there and could not be read. `what`: in words, with what to do; `past`: which packets meet it. @default any packet may */
  | { readonly kind: "unread"; readonly what: string; readonly isOfRules?: true; readonly past?: WaysPast | undefined }
  /** Addresses to assign to a device: input of `ip -batch`. */
  | { readonly kind: "addresses"; readonly text: string };

/** The text is not a dump, or is truncated. */
export class DumpError extends Error {
  override readonly name = "DumpError";
  /** Undefined if no tool is known to print such a text. */
  readonly tool: "iptables-save" | "nft" | undefined;
  constructor(message: string, tool?: DumpError["tool"]) {
    super(message);
    this.tool = tool;
  }
}

/** Reads the output of a tool that only some modes use. */
export interface DumpReader {
  /** The command, for people: `ipvsadm -S -n`. */
  readonly prints: string;
  /** @param name of the text, for errors. @returns undefined if another tool printed it. @throws DumpError */
  read(text: string, name: string): Dump | undefined;
}

const PRINTED = ["iptables-save", "nft list ruleset", "ipset save"];

/**
 * The dumps of a file: concatenated outputs of iptables tools become one dump each.
 *
 * @param name of the file, for errors. @throws DumpError
 */
export function recogniseDumps(given: string, name: string, readers: readonly DumpReader[] = []): Dump[] {
  const text = given.replaceAll("\r\n", "\n");
  const dump = recogniseDump(text, name, readers);
  if (dump.kind === "nftables") return [{ ...dump, gaps: [...(dump.gaps ?? []), ...missingElements(dump.objects)] }];
  if (dump.kind !== "iptables") return [dump];
  const { isPart = false } = dump;
  const gaps = savedGaps(dump.text);
  return savesIn(dump.text).map((part, at) => ({ ...iptablesDump(part, name), isPart, ...(at === 0 && { gaps }) }));
}

/** @param name of the file, for errors. @throws DumpError */
export function recogniseDump(text: string, name: string, readers: readonly DumpReader[] = []): Dump {
  const start = text.trimStart();
  if (start === "") throw new DumpError(`${name} is empty: where there are no rules, iptables-save prints nothing`);
  if (start.startsWith("{")) return { kind: "nftables", objects: nftablesObjects(text, name) };
  const line = FIRST_LINE.exec(start)?.[0].trim() ?? "";
  if (/^\*\S|^:\S/.test(line)) return iptablesDump(text, name);
  if (/^create \S+ \S+:\S+/.test(line)) return { kind: "ipset", text };
  if (/^(?:addr|link) add /.test(line)) return { kind: "addresses", text };
  if (isListing(text)) return { kind: "nftables", ...readListing(text) };
  if (line === "" && OF_IPTABLES.test(start)) return iptablesDump(text, name);
  const listed = listedRules(text);
  if (listed !== undefined) return { ...iptablesDump(listed.text, name), isPart: listed.isPart };
  for (const reader of readers) {
    const dump = reader.read(text, name);
    if (dump !== undefined) return dump;
  }
  const known = [...PRINTED, ...readers.map(({ prints }) => prints)];
  throw new DumpError(
    `${name} is not what ${known.slice(0, -1).join(", ")} or ${known.at(-1)} prints: it begins with ${JSON.stringify(line.slice(0, 60))}${isShortened(line) ? "; iptables -L leaves out parts of rules: give iptables-save" : ""}`,
  );
}

/** Nothing but comments: no table, or none that iptables can print. */
const OF_IPTABLES = /^# (?:Generated by ip6?tables|Table `\w+' is incompatible)/;

const isShortened = (line: string): boolean => /^Chain \S+ \((?:policy|\d+ references)/.test(line);

/** The first line that is neither empty nor a comment. */
const FIRST_LINE = /^(?![^\S\n]*(?:#|$)).*$/m;

function nftablesObjects(text: string, name: string): readonly unknown[] {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new DumpError(`${name} is cut, or no JSON: ${messageOf(error)}`, "nft");
  }
  const list = isObject(json) ? json.nftables : undefined;
  if (!Array.isArray(list))
    throw new DumpError(`${name} is JSON, but not of nft -j list ruleset: it has no "nftables"`, "nft");
  // Flags are believed of certain versions.
  const isVersioned = list.some((object) => isObject(object) && object.metainfo !== undefined);
  return isVersioned ? list : [{ metainfo: { version: "" } }, ...list];
}

const TABLE = /^\*(\S+)$/gm;
const COMMIT = /^COMMIT$/gm;

function iptablesDump(given: string, name: string): Dump & { readonly kind: "iptables" } {
  const text = given.replaceAll(/^[ \t]+|[ \t]+$/gm, "");
  const tables = [...text.matchAll(TABLE)].map(([, table]) => table);
  const commits = [...text.matchAll(COMMIT)].length;
  if (commits < tables.length) {
    const cut = `${name} is cut: the table ${tables[commits] ?? ""} does not end with COMMIT`;
    throw new DumpError([cut, ...savedGaps(text)].join("; "), "iptables-save");
  }
  return { kind: "iptables", family: savedFamily(text), text };
}
