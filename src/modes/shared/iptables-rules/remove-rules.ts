/**
 * Removes what the iptables mode leaves in the kernel, and nothing else: reference iptables-operation.md §13. The chain
 * KUBE-FIREWALL and its jumps stay, as the kubelet uses them too, and so do its own chains and all foreign rules.
 */
import type { Iptables } from "../../../kernel/iptables/iptables.ts";
import { chainLines, deletionLines, ruleArguments, transactionText } from "../../../kernel/iptables/rule-text.ts";
import type { Logger } from "../../../logging/logger.ts";
import { CHAINS, isServiceChain } from "./chain-names.ts";
import type { JumpRule } from "./rules-plan.ts";
import { JUMP_RULES, TOP_LEVEL_CHAINS } from "./top-level-rules.ts";

const OWN_CHAINS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ["nat", new Set<string>([...TOP_LEVEL_CHAINS.nat, CHAINS.canary])],
  ["filter", new Set<string>([...TOP_LEVEL_CHAINS.filter, CHAINS.canary])],
  ["mangle", new Set<string>([CHAINS.canary])],
]);

/** Whether {@link cleanUpIptables} removes a chain of this name if it is not shared. */
export function isIptablesChain(table: string, chain: string): boolean {
  return (OWN_CHAINS.get(table)?.has(chain) ?? false) || (table === "nat" && isServiceChain(chain));
}

/**
 * How many chains one transaction names if the tools prefer small ones: the time of iptables-nft-restore grows with
 * their square (docs/performance.md).
 */
const CHAINS_PER_TRANSACTION = 500;

/** Rules that another mode also has and needs. */
export interface SharedRules {
  hasJump(jump: JumpRule): boolean;
  hasChain(table: "nat" | "filter", chain: string): boolean;
}

const NOTHING_SHARED: SharedRules = { hasJump: () => false, hasChain: () => false };

/**
 * Deletes the jumps and chains of one family step by step; logs a step that fails and goes on.
 *
 * @param shared rules that stay. @default none
 * @returns whether everything worked.
 */
export async function cleanUpIptables(iptables: Iptables, log: Logger, shared = NOTHING_SHARED): Promise<boolean> {
  let succeeded = true;
  const attempt = async (what: string, work: () => Promise<void>) => {
    try {
      await work();
    } catch (error) {
      succeeded = false;
      log.error(`Error removing iptables rules: ${what}`, error, { ipFamily: iptables.family });
    }
  };
  for (const jump of JUMP_RULES) {
    if (jump.isShared || shared.hasJump(jump)) continue;
    const { table, rule } = jump;
    await attempt(`jump from ${rule.chain} in table ${table}`, () =>
      iptables.deleteRule(table, rule.chain, ruleArguments(rule)),
    );
  }
  for (const table of ["nat", "filter"] as const) {
    await attempt(`chains of table ${table}`, async () => {
      const chains = (await iptables.chainNames(table)).filter(
        (chain) => isIptablesChain(table, chain) && !shared.hasChain(table, chain),
      );
      if (chains.length === 0) return;
      const restore = (texts: readonly string[]) =>
        iptables.restore(
          texts.map((lines) => transactionText(table, lines)),
          { table },
        );
      // Every chain is emptied before any is deleted, because they may refer to one another.
      const portions = portionsOf(chains, iptables.prefersSmallTransactions ? CHAINS_PER_TRANSACTION : chains.length);
      if (portions.length === 1) {
        await restore([chainLines(chains) + deletionLines(chains)]);
        return;
      }
      await restore(portions.map(chainLines));
      for (const portion of portions) {
        await attempt(`${portion.length} chains of table ${table}`, () => restore([deletionLines(portion)]));
      }
    });
  }
  await attempt("canary chain", async () => {
    const presence = await iptables.chainPresence("mangle", CHAINS.canary);
    if (presence === "present") await iptables.deleteChain("mangle", CHAINS.canary);
  });
  return succeeded;
}

function portionsOf(chains: readonly string[], most: number): (readonly string[])[] {
  const portions: (readonly string[])[] = [];
  for (let first = 0; first < chains.length; first += most) portions.push(chains.slice(first, first + most));
  return portions;
}
