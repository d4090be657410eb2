/**
 * The chains of iptables' tables, as far as the kernel tells them without a tool. Starting a tool costs 10 ms and more, and a
 * clean-up that finds nothing would start a dozen.
 */
import { readFile } from "node:fs/promises";
import type { IpFamily } from "../../net/ip.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../netlink/nfnetlink.ts";
import { openNftables } from "../nftables/wire/nftables-client.ts";
import type { IptablesTable } from "./iptables.ts";

const TABLES: ReadonlySet<string> = new Set<IptablesTable>(["nat", "filter", "mangle"]);

/** Names of the tables of the legacy back end that exist in this network namespace; no such file without its module. */
const LEGACY_TABLES: Readonly<Record<IpFamily, string>> = {
  IPv4: "/proc/net/ip_tables_names",
  IPv6: "/proc/net/ip6_tables_names",
};

export interface ChainName {
  readonly table: string;
  readonly chain: string;
}

/**
 * All chains of the family's tables nat, filter and mangle in this process's network namespace; undefined where only a tool
 * can tell, because a table of the legacy back end exists or the kernel has no nf_tables. Never rejects.
 */
export async function chainsAtHand(family: IpFamily): Promise<readonly ChainName[] | undefined> {
  try {
    if ((await legacyTables(family)).some((table) => TABLES.has(table))) return undefined;
    return await nftChains(family === "IPv4" ? NFPROTO_IPV4 : NFPROTO_IPV6);
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

async function nftChains(protocol: number): Promise<readonly ChainName[]> {
  await using client = openNftables();
  const chains: ChainName[] = [];
  for (const { name: table } of await client.tables(protocol)) {
    if (table === undefined || !TABLES.has(table)) continue;
    for (const { name: chain } of await client.chainHeads(protocol, table)) {
      if (chain !== undefined) chains.push({ table, chain });
    }
  }
  return chains;
}
