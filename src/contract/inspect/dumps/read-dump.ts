/** Detects which tool printed a dump, and reads it: iptables-save of any version and back end, ipset, ipvsadm. */
import type { IpFamily } from "../../../net/ip.ts";
import { DumpError, type DumpKind, type Inventory, InventoryDraft } from "./inventory.ts";

/** Printed in place of a table that contains something from `nft` that the tool does not know. */
const UNREADABLE = /^# Table `(?:nat|filter)' is incompatible/;

/** @param family of the whole text. @throws DumpError if the text is truncated, lacks a table or is something else. */
export function readIptablesSave(text: string, family: IpFamily): Inventory {
  const draft = new InventoryDraft();
  let table: string | undefined;
  for (const [index, raw] of text.split("\n").entries()) {
    const line = raw.trimEnd();
    const fail = (why: string) => new DumpError(`line ${index + 1}: ${why}`);
    if (UNREADABLE.test(line)) throw fail(`it lacks a table; the tool says: ${line.slice(2)}`);
    if (line === "" || line.startsWith("#")) continue;
    if (line.startsWith("*")) {
      if (table !== undefined) throw fail(`table ${line.slice(1)} begins before ${table} has ended with COMMIT`);
      table = line.slice(1);
      draft.place(placeOf(family, table));
      continue;
    }
    if (table === undefined) throw fail("is outside of a table: this is not what iptables-save prints");
    if (line === "COMMIT") {
      table = undefined;
      continue;
    }
    const [, chain, policy] = /^:(\S+) (\S+)/.exec(line) ?? [];
    if (chain !== undefined) {
      draft.hold({
        kind: "chain",
        place: placeOf(family, table),
        name: chain,
        isOrdered: true,
        isBuiltIn: policy !== "-",
      });
      continue;
    }
    // With -c, counters precede the rule.
    const [, name, rest = ""] = /^(?:\[\d+:\d+\] )?-A (\S+)(?: (.*))?$/.exec(line) ?? [];
    if (name === undefined) throw fail("is no rule, chain or table");
    if (!draft.add(placeOf(family, table), name, `-A ${name}${rest === "" ? "" : ` ${spelled(rest)}`}`)) {
      throw fail(`chain ${name} is not declared`);
    }
  }
  if (table !== undefined) throw new DumpError(`it is cut: table ${table} does not end with COMMIT`);
  return draft.finish("iptables-save");
}

function placeOf(family: IpFamily, table: string): string {
  return `${family} ${table}`;
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

/** @throws DumpError if ipset did not print the text. */
function readIpsetSave(text: string): Inventory {
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
  return draft.finish("ipset");
}

const OPTION = "(?:-t|-u|--tcp-service|--udp-service|--sctp-service)";
/** A virtual server for a firewall mark, which is never ours, or one of its real servers. */
const OF_MARK = /^-[Aa] (?:-f|--fwmark-service) /;
const VIRTUAL = new RegExp(String.raw`^-A (${OPTION}) (\S+)(.*)$`);
const REAL = new RegExp(String.raw`^-a (${OPTION}) (\S+) -r (\S+)(.*)$`);

/** @throws DumpError if ipvsadm did not print the text. */
function readIpvsadmSave(text: string): Inventory {
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

/** The tool that printed a text; undefined if it is none of these. */
export function dumpKind(text: string): DumpKind | undefined {
  if (/^\*(?:nat|filter|mangle|raw|security)$/m.test(text)) return "iptables-save";
  if (/^[ \t]*table \S+ \S+ \{/m.test(text)) return "nft";
  if (/^create \S+ \S+/m.test(text)) return "ipset";
  return /^-A (?:-t|-u|--\w+-service) /m.test(text) ? "ipvsadm" : undefined;
}

/**
 * Reads what any of the tools but nft printed.
 *
 * @param family of an iptables dump. @throws DumpError if none of them printed it, or it is truncated.
 */
export function readDump(given: string, family: IpFamily | undefined): Inventory {
  const text = given.replaceAll("\r\n", "\n");
  switch (dumpKind(text)) {
    case "iptables-save":
      if (family === undefined)
        throw new DumpError("it does not tell whether iptables or ip6tables printed it: add --family");
      return readIptablesSave(text, family);
    case "ipset":
      return readIpsetSave(text);
    case "ipvsadm":
      return readIpvsadmSave(text);
    case "nft":
    case undefined:
      if (text.trim() === "")
        throw new DumpError("it is empty: where there are no rules, iptables-save prints nothing");
      throw new DumpError("it is not what iptables-save, nft list, ipset save or ipvsadm -S -n print");
  }
}
