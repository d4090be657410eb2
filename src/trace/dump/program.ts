/** All rules that packets of one family meet on a node, from the output of its tools. */
import { readRuleset, type TableTexts } from "../../kernel/iptables/parser/ruleset.ts";
import { isObject, textOf } from "../../kernel/nftables/json.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import { iptablesChains } from "../iptables/ruleset.ts";
import { readIpSets } from "../iptables/saved-sets.ts";
import { kernelLists, RememberedLists, UNKNOWN_LISTS } from "../iptables/surroundings.ts";
import { programOf } from "../netfilter/calling-order.ts";
import type { Entry, Program } from "../netfilter/program.ts";
import { readNftRuleset } from "../nftables/ruleset.ts";
import type { Dump } from "./recognise.ts";

export interface DumpOptions {
  readonly family: IpFamily;
  readonly facts: NodeFacts;
  /** Whether no client has connected before; otherwise the kernel's lists decide, and without them the walk asks. */
  readonly knowsClients: boolean;
  /** Whether the listed elements of sets that packets fill are complete. */
  readonly knowsDynamicSets: boolean;
}

/** Rules to walk, with the entries that packets add. */
interface TracedProgram {
  readonly program: Program;
  /** Adds what a packet wrote into a set or a list (`Outcome.entries`), for later packets. */
  remember(entry: Entry): void;
  /** Removes everything that {@link remember} added. */
  forget(): void;
}

/** Combines the dumps of a node. iptables dumps must be of the given family. */
export function programOfDumps(dumps: readonly Dump[], options: DumpOptions): TracedProgram {
  const { family, facts, knowsClients, knowsDynamicSets } = options;
  const lists = new RememberedLists();
  const clients = knowsClients ? lists : undefined;
  const listed = dumps.find((dump) => dump.kind === "recent");
  const recent = clients ?? (listed === undefined ? UNKNOWN_LISTS : kernelLists(listed.lists, lists));
  const sets = readIpSets(dumps.flatMap((dump) => (dump.kind === "ipset" ? [dump.text] : [])));
  const saved = dumps.flatMap((dump): readonly TableTexts[] => {
    if (dump.kind === "iptables-tables") return [dump.tables];
    return dump.kind === "iptables" ? [readRuleset(dump.text)] : [];
  });
  const savedTables = saved.flatMap((tables) => [...tables]);
  const rulesets = dumps.flatMap((dump) => {
    if (dump.kind !== "nftables") return [];
    const without = tablesIn(savedTables, dump.objects, family);
    return [readNftRuleset(dump.objects, { family, facts, knowsDynamicSets, without })];
  });
  const chains = [
    ...saved.flatMap((tables) => iptablesChains(tables, family, { facts, sets, recent })),
    ...rulesets.flatMap((ruleset) => ruleset.chains),
    ...dumps.flatMap((dump) => (dump.kind === "chains" ? dump.chains(facts, clients) : [])),
  ];
  return {
    program: programOf(chains),
    remember(entry) {
      for (const memory of [lists, ...rulesets]) memory.remember(entry);
    },
    forget() {
      for (const memory of [lists, ...rulesets]) memory.forget();
    },
  };
}

/**
 * Tables in the saved output that nft lists too: iptables-nft keeps its rules there, and nft prints them less readably. Tables of
 * iptables-legacy have the same names, but other chains.
 */
function tablesIn(
  saved: readonly (readonly [table: string, chains: ReadonlyMap<string, unknown>])[],
  objects: readonly unknown[],
  family: IpFamily,
): ReadonlySet<string> {
  const found = new Set<string>();
  for (const [table, chains] of saved) {
    const label = `${family === "IPv4" ? "ip" : "ip6"} ${table}`;
    const listed = objects.flatMap((object) => {
      const chain = isObject(object) && isObject(object.chain) ? object.chain : {};
      return chain.hook === undefined && `${chain.family} ${chain.table}` === label ? [textOf(chain.name) ?? ""] : [];
    });
    // The table may have changed between the two listings.
    if (2 * listed.filter((name) => chains.has(name)).length >= listed.length) found.add(label);
  }
  return found;
}
