/** Removes the rules, or on Windows the addresses, that lead clients to the userspace mode. */

import type { CleanUp } from "../../contract/dataplane.ts";
import type { Iptables } from "../../kernel/iptables/iptables.ts";
import { chainLines, deletionLines, ruleArguments, transactionText } from "../../kernel/iptables/rule-text.ts";
import type { Logger } from "../../logging/logger.ts";
import { cleanUpFamilies } from "../shared/iptables-tools.ts";
import { PORTAL_CHAINS, PORTAL_JUMPS } from "./plan-portal-rules.ts";

export const cleanUp: CleanUp = async (log) =>
  process.platform === "win32"
    ? await (await import("./windows-host.ts")).removeAddresses(log)
    : await cleanUpFamilies(isPortalChain, (iptables) => cleanUpPortals(iptables, log), log);

const CHAINS: ReadonlySet<string> = new Set(Object.values(PORTAL_CHAINS));

/** Whether {@link cleanUpPortals} removes a chain of this name. */
function isPortalChain(table: string, chain: string): boolean {
  return (table === "nat" || table === "filter") && CHAINS.has(chain);
}

/**
 * Deletes the jumps and chains of one family; logs a step that fails and goes on with the next. Costs little if the
 * mode never ran.
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
  await iptables.restore([transactionText(table, chainLines(chains) + deletionLines(chains))], { table });
}
