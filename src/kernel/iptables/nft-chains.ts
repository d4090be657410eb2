/**
 * The chains of an iptables table whose rules live in nf_tables, asked of the kernel directly: `iptables-nft-save` reads
 * every rule to print them, which takes seconds where this takes milliseconds (docs/performance.md).
 */
import type { IpFamily } from "../../net/ip.ts";
import { isNotFound } from "../netlink/errors.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../netlink/nfnetlink.ts";
import { openNftables } from "../netlink/nftables/nftables-client.ts";
import type { IptablesTable } from "./iptables.ts";

/** Chain names of the table in this process's network namespace; none when the table has not been made yet. */
export async function listNftChains(family: IpFamily, table: IptablesTable): Promise<readonly string[]> {
  await using client = openNftables();
  try {
    const chains = await client.chains(family === "IPv4" ? NFPROTO_IPV4 : NFPROTO_IPV6, table);
    return chains.flatMap(({ name }) => name ?? []);
  } catch (error) {
    if (isNotFound(error)) return [];
    throw error;
  }
}
