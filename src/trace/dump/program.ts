/** All rules that packets of one family meet on a node, from the output of its tools. */
import type { IpFamily } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import { iptablesChains } from "../iptables/ruleset.ts";
import { readIpSets } from "../iptables/saved-sets.ts";
import { ipSetName, kernelLists, provedLists, RememberedLists, UNKNOWN_LISTS } from "../iptables/surroundings.ts";
import { programOf } from "../netfilter/calling-order.ts";
import type { BaseChain, Entry } from "../netfilter/program.ts";
import { readNftRuleset } from "../nftables/ruleset.ts";
import { placesOf, registrationsOf } from "./hooked.ts";
import { judgeSaved, type SavedTable, savedTables } from "./iptables-nft.ts";
import type { Dump } from "./recognise.ts";

export interface DumpOptions {
  readonly family: IpFamily;
  readonly facts: NodeFacts;
  /** Whether no client has connected before; otherwise the kernel's lists decide, and without them the walk asks. */
  readonly knowsClients: boolean;
  /** Whether the listed elements of sets that packets fill are complete. */
  readonly knowsDynamicSets: boolean;
}

/** The rules to walk: combines the dumps of a node. iptables dumps must be of the given family. */
export function programOfDumps(dumps: readonly Dump[], options: DumpOptions) {
  const { family, facts, knowsClients, knowsDynamicSets } = options;
  const lists = new RememberedLists();
  const clients = knowsClients ? lists : undefined;
  const listed = dumps.find((dump) => dump.kind === "recent");
  const recent = clients
    ? provedLists(listed?.lists, clients)
    : listed === undefined
      ? UNKNOWN_LISTS
      : kernelLists(listed.lists, lists);
  const sets = readIpSets(
    dumps.flatMap((dump) => (dump.kind === "ipset" ? [dump.text] : [])),
    (name) => lists.entryOf(ipSetName(name), "") !== undefined,
  );
  const saved = savedTables(dumps);
  const listings = dumps.flatMap((dump) => (dump.kind === "nftables" ? [dump.objects] : []));
  const kernel = dumps.flatMap((dump) => (dump.kind === "nftables" ? (dump.kernel ?? []) : []))[0];
  const judged = listings.map((objects) => judgeSaved(saved, objects, family));
  const rulesets = listings.map((objects, at) => {
    const without = judged[at]?.ofIptables ?? new Set();
    return readNftRuleset(objects, { family, facts, knowsDynamicSets, kernel, without, iptables: { sets, recent } });
  });
  const trusted = saved.filter((table) => !judged.some(({ mistrusted }) => mistrusted.has(table)));
  const [places, registrations] = [placesOf(dumps, family), registrationsOf(dumps)];
  const called = (chain: BaseChain, table: string | undefined): BaseChain => ({
    ...chain,
    ...{ place: places(chain, table), registered: registrations(chain, table) },
  });
  // Nothing but the hooks tells the order of both back ends' chains, so they must not look like those of one table.
  const backEndOf = ({ name, backEnd }: SavedTable) =>
    backEnd === "legacy" && trusted.some((one) => one.name === name && one.backEnd !== "legacy") ? "-legacy" : "";
  const chains = [
    ...trusted.flatMap((table) => {
      const listed = table.backEnd === "nft" ? `${family === "IPv4" ? "ip" : "ip6"} ${table.name}` : undefined;
      const own = new Map([[table.name, table.chains]]);
      return iptablesChains(own, family, { facts, sets, recent }, backEndOf(table)).map((chain) =>
        called(chain, listed),
      );
    }),
    ...rulesets.flatMap((ruleset) => ruleset.chains.map((chain) => called(chain, chain.table))),
    ...dumps.flatMap((dump) => (dump.kind === "chains" ? dump.chains(facts, clients) : [])),
  ];
  return {
    program: programOf(chains),
    /** Adds what a packet wrote into a set or a list (`Outcome.entries`), for later packets. */
    remember(entry: Entry) {
      for (const memory of [lists, ...rulesets]) memory.remember(entry);
    },
    /** Removes everything that `remember` added. */
    forget() {
      for (const memory of [lists, ...rulesets]) memory.forget();
    },
  };
}
