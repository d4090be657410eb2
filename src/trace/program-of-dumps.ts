/** Everything that packets of one family meet on a node, from what its tools print. */
import { readRuleset } from "../kernel/iptables/parser/ruleset.ts";
import type { IpFamily } from "../net/ip.ts";
import type { NodeFacts } from "./facts.ts";
import { iptablesChains } from "./iptables/ruleset.ts";
import { type IpSets, NO_SETS, type RecentLists } from "./iptables/surroundings.ts";
import { type Program, programOf } from "./netfilter/program.ts";
import { readNftRuleset } from "./nftables/ruleset.ts";

export interface Dumps {
  /** Of iptables-save, or of ip6tables-save for IPv6. */
  readonly iptables?: string | undefined;
  /** The list behind `nftables` in what `nft -j list ruleset` prints. */
  readonly nftables?: readonly unknown[] | undefined;
}

export interface DumpOptions {
  readonly family: IpFamily;
  readonly facts: NodeFacts;
  readonly recent: RecentLists;
  readonly sets?: IpSets;
  /** Whether what is listed in sets that packets fill is all that is in them. */
  readonly knowsDynamicSets: boolean;
}

/** Puts the dumps of a node together. Pure. */
export function programOfDumps({ iptables, nftables }: Dumps, options: DumpOptions): Program {
  const { family, facts, recent, knowsDynamicSets, sets = NO_SETS } = options;
  const saved = iptables === undefined ? undefined : readRuleset(iptables);
  const chains = saved === undefined ? [] : iptablesChains(saved, family, { facts, sets, recent });
  if (nftables === undefined) return programOf(chains);
  // The nft variant of iptables keeps its rules in tables that nft lists as well, less readably.
  const prefix = family === "IPv4" ? "ip" : "ip6";
  const without = new Set([...(saved?.keys() ?? [])].map((table) => `${prefix} ${table}`));
  return programOf([...chains, ...readNftRuleset(nftables, { family, facts, knowsDynamicSets, without }).chains]);
}
