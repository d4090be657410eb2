/**
 * Reads the chains of an iptables table in nf_tables from the kernel: `iptables-nft-save` reads every rule to print
 * them, which takes seconds instead of milliseconds (docs/notes/performance-diary.md).
 */

import { realpath } from "node:fs/promises";
import { basename, join } from "node:path";
import type { IpFamily } from "../../net/ip.ts";
import { undefinedIf } from "../netlink/errors.ts";
import { nfprotoOf } from "../netlink/nfnetlink.ts";
import { NftBatch } from "../nftables/wire/batch.ts";
import { NF_INET_HOOKS } from "../nftables/wire/constants.ts";
import { type NftablesClient, openNftables } from "../nftables/wire/nftables-client.ts";
import { withSystemDirectories } from "../process.ts";
import type { IptablesTable } from "./iptables.ts";
import { legacyTables } from "./legacy-tables.ts";

/** Queries nf_tables in this process's network namespace; undefined if the table or chain does not exist. */
async function ask<T>(question: (client: NftablesClient) => Promise<T>): Promise<T | undefined> {
  await using client = openNftables();
  return await question(client).catch(undefinedIf("ENOENT"));
}

/** For each chain of the table, the number of its rules plus rules that jump to it; empty if there is no table yet. */
export async function nftChainUses(family: IpFamily, table: IptablesTable): Promise<ReadonlyMap<string, number>> {
  const chains = await ask((client) => client.chainHeads(nfprotoOf(family), table));
  return new Map(chains?.flatMap(({ name, use }) => (name === undefined ? [] : [[name, use ?? 0]])));
}

/** The number of rules in a chain; 0 if the chain does not exist. */
export async function countNftRules(family: IpFamily, table: IptablesTable, chain: string): Promise<number> {
  return (await ask((client) => client.ruleHeads(nfprotoOf(family), table, chain)))?.length ?? 0;
}

/** A number that changes with every commit of any program. */
export async function nftGeneration(): Promise<number | undefined> {
  return (await ask((client) => client.generation()))?.id;
}

const TABLES: readonly IptablesTable[] = ["nat", "filter", "mangle"];

interface ChainName {
  readonly table: IptablesTable;
  readonly chain: string;
}

/**
 * All chains of the family's tables nat, filter and mangle in this process's network namespace; undefined if only a
 * tool can tell, because a legacy table exists or the kernel has no nf_tables. Starting a tool costs 10 ms or more, and
 * a clean-up that finds nothing would start a dozen. Never rejects.
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

/** Whether the kernel supports chains of type nat for the family. Creates nothing. */
export async function hasNat(family: IpFamily): Promise<boolean> {
  const batch = new NftBatch(nfprotoOf(family));
  const table = "nat";
  batch.add("table", { name: table });
  const hook = { hooknum: NF_INET_HOOKS.prerouting, priority: -100 };
  batch.add("chain", { table, name: "kube-proxy-check", type: "nat", hook });
  await using client = openNftables();
  return (await client.check(batch)).committed;
}

/** The program behind all tools of the nft back end, since iptables 1.8.0. */
const NFT_PROGRAM = "xtables-nft-multi";

/** Whether the tool that the PATH leads to belongs to the nft back end. */
export async function isNftTool(command: string): Promise<boolean> {
  for (const folder of withSystemDirectories(process.env.PATH).split(":")) {
    const file = await realpath(join(folder, command)).catch(() => undefined);
    if (file !== undefined) return basename(file) === NFT_PROGRAM;
  }
  return false;
}
