/** What a node has beside its dumps, as far as the dumps tell, each with what to give. */

import { isObject } from "../../kernel/nftables/json.ts";
import { iptablesTables } from "../../kernel/nftables/listing/listing.ts";
import type { BaseChain, Stage } from "../netfilter/program.ts";
import { backEndOf } from "./iptables-nft.ts";
import { type Dump, listedObjects } from "./recognise.ts";

const LEGACY = /^# Warning: ip6?tables-legacy tables present/m;
const UNREADABLE = /^# Table `(\w+)' is incompatible/m;
/** Of kube-proxy's and kube-router's rules in ipvs mode. */
const OF_IPVS = /(?:--match-set KUBE-CLUSTER-IP|-m ipvs --ipvs|--match-set kube-router-(?:service-ips|svip)\S*) /;
const OF_SERVICES = /^:KUBE-(?:SERVICES|ROUTER-SERVICES) /m;

/** What is missing, in words: what the rest does with a packet says nothing of what the node does with it. */
export function gapsIn(dumps: readonly Dump[]): string[] {
  const saved = dumps.flatMap((dump) => (dump.kind === "iptables" ? [dump] : []));
  const listed = dumps.flatMap((dump) => (dump.kind === "nftables" ? [dump] : []));
  const unread = dumps.flatMap((dump) => (dump.kind === "unread" && dump.isOfRules ? [dump.what] : []));
  const gaps = [...unread, ...[...saved, ...listed].flatMap((dump) => dump.gaps ?? []), ...givenTwice(dumps)];
  for (const { text, isPart, family } of saved) {
    const others = saved.filter((other) => other.text !== text && other.family === family);
    if (LEGACY.test(text) && !others.some((other) => !LEGACY.test(other.text)))
      gaps.push("tables of iptables-legacy are not in the dump: give what iptables-legacy-save prints, too");
    const [, table] = UNREADABLE.exec(text) ?? [];
    if (table !== undefined && listed.length === 0)
      gaps.push(
        `the table ${table} is not in the dump, for it was made by nft: give what nft list ruleset prints, too`,
      );
    if (isPart)
      gaps.push(
        "only a part of the rules was given, without a table: it is read as nat's, and the rest is not in the dump",
      );
  }
  if (lacksVirtualServers(dumps)) gaps.push(`${NO_SERVERS}: give what ipvsadm -S -n prints, too`);
  const hasServices = saved.some(({ text }) => OF_SERVICES.test(text)) || listed.length > 0;
  const isOfRules = saved.length > 0 && dumps.every(({ kind }) => kind !== "chains");
  return gaps.length > 0 && isOfRules && !hasServices ? [...gaps, "no rule for Services is in the dump"] : gaps;
}

/** One node has each of these once; iptables' back ends have tables of one name. */
function givenTwice(dumps: readonly Dump[]): string[] {
  const names = dumps.flatMap((dump) => {
    if (dump.kind === "chains") return dump.tool === undefined ? [] : [`what ${dump.tool} prints`];
    if (dump.kind === "ipset")
      return Array.from(dump.text.matchAll(/^create (\S+)/gm), ([, set]) => `the IP set ${set}`);
    if (dump.kind === "iptables") {
      const tool = ["iptables", backEndOf(dump.text), dump.family].filter((word) => word !== undefined).join(" ");
      return Array.from(dump.text.matchAll(/^\*(\S+)$/gm), ([, name]) => `the table ${name} of ${tool}`);
    }
    return listedObjects([dump]).flatMap((object) => {
      if (!isObject(object)) return [];
      if (isObject(object.table)) return `the table ${object.table.family} ${object.table.name}`;
      const [kind, body] = Object.entries(object)[0] ?? [];
      const isOfTable = isObject(body) && kind !== "rule" && kind !== "element" && body.table !== undefined;
      return isOfTable ? `the ${kind} ${body.name} of the table ${body.family} ${body.table}` : [];
    });
  });
  const seen = new Set<string>();
  const twice = names.find((name) => seen.size === seen.add(name).size);
  return twice === undefined ? [] : [`${twice} is given twice, of two nodes or times: give the dumps of one`];
}

/** Tables of iptables-nft, of which nft prints only a part. */
export function iptablesHint(dumps: readonly Dump[]): string[] {
  const saved = dumps.flatMap((dump) => (dump.kind === "iptables" ? [dump.text] : []));
  const tables = new Set(
    dumps.flatMap((dump) => (dump.kind === "nftables" ? [...iptablesTables(dump.objects, dump.ofIptables)] : [])),
  );
  const lacking = [...tables].filter(
    (table) => !saved.some((text) => new RegExp(`^\\*${table.split(" ")[1]}$`, "m").test(text)),
  );
  if (lacking.length === 0) return [];
  return [`nft does not print all that iptables has in ${lacking.join(", ")}: give the output of iptables-save, too`];
}

const NO_SERVERS = "virtual servers of ipvs are not in the dump";

/** Whether rules of an ipvs mode are there, and no virtual servers. */
export function lacksVirtualServers(dumps: readonly Dump[]): boolean {
  const isOfIpvs = dumps.some((dump) => dump.kind === "iptables" && OF_IPVS.test(dump.text));
  return isOfIpvs && !dumps.some((dump) => dump.kind === "chains" && dump.tool === "ipvsadm");
}

/** In the place of virtual servers that are not known: they may take any packet that enters or leaves the node. */
export const UNKNOWN_SERVERS: Dump = {
  kind: "chains",
  chains: () => [unknownServers("input", 99), unknownServers("output", -98)],
};

function unknownServers(stage: Stage, priority: number): BaseChain {
  const text = "a virtual server";
  const rule = {
    text,
    steps: [{ text, asks: [], isAction: true, run: () => ({ kind: "lost", because: NO_SERVERS }) as const }],
  };
  const chain = { name: "virtual servers", length: 1, isNumbered: false, ruleAt: () => rule };
  return { table: "ipvs", type: "filter", stage, priority, policy: "accept", chain, chainNamed: () => undefined };
}
