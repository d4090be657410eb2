/**
 * What the iptables mode left on a node that has changed to this one: its refusals of services without endpoints would go on
 * without end. They go once the rules of this mode are in force, so that no service is without an answer in between.
 */
import type { Iptables } from "../../kernel/iptables/iptables.ts";
import { ruleSpec } from "../../kernel/iptables/rule-text.ts";
import type { Logger } from "../../logging/logger.ts";
import { CHAINS as IPTABLES_CHAINS, isServiceChain } from "../shared/iptables-rules/chain-names.ts";
import { cleanUpIptables, type SharedRules } from "../shared/iptables-rules/remove-rules.ts";
import { CHAINS_OF, JUMP_RULES } from "./plan-rules.ts";

const OWN_JUMPS: ReadonlySet<string> = new Set(JUMP_RULES.map(({ table, rule }) => `${table} ${ruleSpec(rule)}`));

const OWN: SharedRules = {
  hasJump: ({ table, rule }) => OWN_JUMPS.has(`${table} ${ruleSpec(rule)}`),
  hasChain: (table, chain) => (CHAINS_OF[table] as readonly string[]).includes(chain),
};

/** Never rejects: what cannot be removed is logged. */
export async function removeIptablesLeftovers(iptables: Iptables, log: Logger): Promise<void> {
  try {
    if (!(await areThere(iptables))) return;
    log.info("Removing what the iptables mode left behind", { ipFamily: iptables.family });
    await cleanUpIptables(iptables, log, OWN);
  } catch (error) {
    log.error("Leftovers of the iptables mode were not looked for", error);
  }
}

async function areThere(iptables: Iptables): Promise<boolean> {
  const filter = new Set(await iptables.chainNames("filter"));
  if (filter.has(IPTABLES_CHAINS.services) || filter.has(IPTABLES_CHAINS.externalServices)) return true;
  return (await iptables.chainNames("nat")).some(isServiceChain);
}
