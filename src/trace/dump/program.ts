/** Everything that packets of one family meet on a node, from what its tools print. */
import { readRuleset } from "../../kernel/iptables/parser/ruleset.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import { iptablesChains } from "../iptables/ruleset.ts";
import { EMPTY_LISTS, UNKNOWN_LISTS } from "../iptables/surroundings.ts";
import { readIpSets } from "../ipvs/saved-sets.ts";
import { ipvsChains } from "../ipvs/virtual-servers.ts";
import { type BaseChain, type Program, programOf } from "../netfilter/program.ts";
import { readNftRuleset } from "../nftables/ruleset.ts";
import type { Dump } from "./recognise.ts";

export interface DumpOptions {
  readonly family: IpFamily;
  readonly facts: NodeFacts;
  /** Whether no client has been here before; otherwise it is asked, for lists are in no dump. */
  readonly knowsClients: boolean;
  /** Whether what is listed in sets that packets fill is all that is in them. */
  readonly knowsDynamicSets: boolean;
}

/** Puts the dumps of a node together. Dumps of iptables must be of the family. Pure. */
export function programOfDumps(dumps: readonly Dump[], options: DumpOptions): Program {
  const { family, facts, knowsClients, knowsDynamicSets } = options;
  const recent = knowsClients ? EMPTY_LISTS : UNKNOWN_LISTS;
  const textsOf = (kind: "ipset" | "ipvsadm") => dumps.flatMap((dump) => (dump.kind === kind ? [dump.text] : []));
  const sets = readIpSets(textsOf("ipset"));
  const saved = dumps.flatMap((dump) => (dump.kind === "iptables" ? [readRuleset(dump.text)] : []));
  const chains: BaseChain[] = saved.flatMap((tables) => {
    return iptablesChains(tables, family, { facts, sets, recent });
  });
  // The nft variant of iptables keeps its rules in tables that nft lists as well, less readably.
  const prefix = family === "IPv4" ? "ip" : "ip6";
  const without = new Set(saved.flatMap((tables) => Array.from(tables.keys(), (table) => `${prefix} ${table}`)));
  for (const dump of dumps) {
    if (dump.kind !== "nftables") continue;
    chains.push(...readNftRuleset(dump.objects, { family, facts, knowsDynamicSets, without }).chains);
  }
  chains.push(...ipvsChains(textsOf("ipvsadm"), facts, knowsClients));
  return programOf(chains);
}
