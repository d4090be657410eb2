/** The programs of one back end: `iptables-legacy`, `iptables-legacy-save`, … */
import type { IpFamily } from "../../../net/ip.ts";
import { DEFAULT_BINARIES } from "../exec-iptables.ts";

export function binariesOf(family: IpFamily, backEnd: "nft" | "legacy") {
  const rule = `${DEFAULT_BINARIES[family].rule}-${backEnd}`;
  return { rule, save: `${rule}-save`, restore: `${rule}-restore` };
}
