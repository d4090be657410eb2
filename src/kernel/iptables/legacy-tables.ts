/** The tables of iptables-legacy, which the kernel keeps beside those of nf_tables. */
import { readFile } from "node:fs/promises";
import type { IpFamily } from "../../net/ip.ts";

/** Files with the names of this network namespace's legacy tables; they exist only if the module is loaded. */
const LEGACY_TABLES: Readonly<Record<IpFamily, string>> = {
  IPv4: "/proc/net/ip_tables_names",
  IPv6: "/proc/net/ip6_tables_names",
};

/** Names of the tables of iptables-legacy in this network namespace. Reading them creates none, as listing one would. */
export async function legacyTables(family: IpFamily): Promise<readonly string[]> {
  try {
    return (await readFile(LEGACY_TABLES[family], "utf8")).split("\n").filter((name) => name !== "");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
    throw error;
  }
}
