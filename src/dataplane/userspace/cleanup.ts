/** Removes what the userspace mode leaves in the kernel: reference userspace.md §1.10. */
import type { Iptables } from "../../kernel/iptables/iptables.ts";
import { ruleArguments } from "../../kernel/iptables/rule-text.ts";
import type { Logger } from "../../logging/logger.ts";
import { PORTAL_CHAINS, PORTAL_JUMPS } from "./plan-portal-rules.ts";

const CHAINS: ReadonlySet<string> = new Set(Object.values(PORTAL_CHAINS));

/** Whether {@link cleanUpPortals} removes a chain of this name. Pure. */
export function isPortalChain(table: string, chain: string): boolean {
  return (table === "nat" || table === "filter") && CHAINS.has(chain);
}

/**
 * Deletes the jumps and chains of one family; a step that fails is logged and the rest goes on. Costs little where the mode
 * never ran.
 *
 * @returns whether everything worked.
 */
export async function cleanUpPortals(iptables: Iptables, log: Logger): Promise<boolean> {
  let succeeded = true;
  for (const table of ["nat", "filter"] as const) {
    try {
      await cleanUpTable(iptables, table);
    } catch (error) {
      succeeded = false;
      log.error(`Error removing the portal rules of table ${table}`, error, { ipFamily: iptables.family });
    }
  }
  return succeeded;
}

async function cleanUpTable(iptables: Iptables, table: "nat" | "filter"): Promise<void> {
  const chains = (await iptables.chainNames(table)).filter((chain) => isPortalChain(table, chain));
  if (chains.length === 0) return;
  for (const jump of PORTAL_JUMPS) {
    if (jump.table === table) await iptables.deleteRule(table, jump.rule.chain, ruleArguments(jump.rule));
  }
  const lines = chains.map((chain) => `:${chain} - [0:0]\n`).join("");
  const deletions = chains.map((chain) => `-X ${chain}\n`).join("");
  await iptables.restore([`*${table}\n${lines}${deletions}COMMIT\n`], { table });
}
