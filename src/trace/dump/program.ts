/** Everything that packets of one family meet on a node, from what its tools print. */
import { readRuleset, type TableTexts } from "../../kernel/iptables/parser/ruleset.ts";
import { isObject, textOf } from "../../kernel/nftables/json.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import { iptablesChains } from "../iptables/ruleset.ts";
import { readIpSets } from "../iptables/saved-sets.ts";
import { kernelLists, RememberedLists, UNKNOWN_LISTS } from "../iptables/surroundings.ts";
import { type Entry, type Program, programOf } from "../netfilter/program.ts";
import { readNftRuleset } from "../nftables/ruleset.ts";
import type { Dump } from "./recognise.ts";

export interface DumpOptions {
  readonly family: IpFamily;
  readonly facts: NodeFacts;
  /** Whether no client has been here before; otherwise the lists of the kernel are asked, and where there are none, the user. */
  readonly knowsClients: boolean;
  /** Whether what is listed in sets that packets fill is all that is in them. */
  readonly knowsDynamicSets: boolean;
}

/** Rules to walk, and what packets leave in them. */
interface TracedProgram {
  readonly program: Program;
  /** Leaves what a packet wrote into a set or a list (`Outcome.entries`) for those that follow. */
  remember(entry: Entry): void;
  /** Takes out all that was left so. */
  forget(): void;
}

/** Puts the dumps of a node together. Dumps of iptables must be of the family. */
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
 * The nft variant of iptables keeps its rules in tables that nft lists as well, less readably. The legacy variant has tables of the
 * same names, with other chains.
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
    // A table may have changed from one listing to the next.
    if (2 * listed.filter((name) => chains.has(name)).length >= listed.length) found.add(label);
  }
  return found;
}
