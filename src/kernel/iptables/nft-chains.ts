/**
 * The chains of an iptables table whose rules live in nf_tables, asked of the kernel directly: `iptables-nft-save` reads
 * every rule to print them, which takes seconds where this takes milliseconds (docs/performance.md).
 */

import { readFile } from "node:fs/promises";
import type { IpFamily } from "../../net/ip.ts";
import { undefinedIf } from "../netlink/errors.ts";
import { nfprotoOf } from "../netlink/nfnetlink.ts";
import { type NftablesClient, openNftables } from "../nftables/wire/nftables-client.ts";
import type { IptablesTable } from "./iptables.ts";

/** Asks nf_tables of this process's network namespace; undefined when the table or chain does not exist. */
async function ask<T>(question: (client: NftablesClient) => Promise<T>): Promise<T | undefined> {
  await using client = openNftables();
  return await question(client).catch(undefinedIf("ENOENT"));
}

/** For each chain of the table, its rules and what goes to it; none when the table has not been made yet. */
export async function nftChainUses(family: IpFamily, table: IptablesTable): Promise<ReadonlyMap<string, number>> {
  const chains = await ask((client) => client.chainHeads(nfprotoOf(family), table));
  return new Map(chains?.flatMap(({ name, use }) => (name === undefined ? [] : [[name, use ?? 0]])));
}

/** The number of rules in a chain; 0 also when there is no such chain. */
export async function countNftRules(family: IpFamily, table: IptablesTable, chain: string): Promise<number> {
  return (await ask((client) => client.ruleHeads(nfprotoOf(family), table, chain)))?.length ?? 0;
}

/** A number that is another one after every commit of any program. */
export async function nftGeneration(): Promise<number | undefined> {
  return (await ask((client) => client.generation()))?.id;
}

const TABLES: readonly IptablesTable[] = ["nat", "filter", "mangle"];

/** Names of the tables of the legacy back end that exist in this network namespace; no such file without its module. */
const LEGACY_TABLES: Readonly<Record<IpFamily, string>> = {
  IPv4: "/proc/net/ip_tables_names",
  IPv6: "/proc/net/ip6_tables_names",
};

interface ChainName {
  readonly table: IptablesTable;
  readonly chain: string;
}

/**
 * All chains of the family's tables nat, filter and mangle in this process's network namespace; undefined where only a tool
 * can tell, because a table of the legacy back end exists or the kernel has no nf_tables. Starting a tool costs 10 ms and more, and a
 * clean-up that finds nothing would start a dozen. Never rejects.
 */
export async function chainsAtHand(family: IpFamily): Promise<readonly ChainName[] | undefined> {
  try {
    const legacy = await legacyTables(family);
    if (TABLES.some((table) => legacy.includes(table))) return undefined;
    const found = TABLES.map(async (table) =>
      Array.from(await nftChainUses(family, table), ([chain]) => ({ table, chain })),
    );
    return (await Promise.all(found)).flat();
  } catch {
    return undefined;
  }
}

async function legacyTables(family: IpFamily): Promise<readonly string[]> {
  try {
    return (await readFile(LEGACY_TABLES[family], "utf8")).split("\n");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
    throw error;
  }
}
