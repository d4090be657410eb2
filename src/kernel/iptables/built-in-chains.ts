/** The chains that every kernel has, per table, in the order in which `iptables-save` prints them. */
import type { IptablesTable } from "./iptables.ts";
import type { Hook } from "./parser/rule-targets.ts";

export const BUILT_IN_CHAINS: Readonly<Record<IptablesTable, readonly Hook[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
  mangle: ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
};
