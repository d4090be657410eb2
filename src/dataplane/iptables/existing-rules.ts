/** What a full sync reads of the kernel before it writes. Failing to read is no reason not to program. */
import type { Iptables } from "../../kernel/iptables/iptables.ts";
import { readTable, type SavedTable } from "../../kernel/iptables/parser/ruleset.ts";
import type { Logger } from "../../logging/logger.ts";

interface ExistingRules {
  /**
   * The filter table is committed before nat can be refused, so its last known good rules are read before. Undefined when it cannot
   * be read.
   */
  readonly savedFilter: SavedTable | undefined;
  /** Undefined when they cannot be read: stale chains then wait for the next full sync (reference iptables-operation.md §9.4). */
  readonly natChains: readonly string[] | undefined;
}

/** Never rejects; what cannot be read is logged. */
export async function readExisting(iptables: Iptables, log: Logger): Promise<ExistingRules> {
  return { savedFilter: await savedFilterOf(iptables, log), natChains: await natChainsOf(iptables, log) };
}

async function savedFilterOf(iptables: Iptables, log: Logger): Promise<SavedTable | undefined> {
  try {
    return readTable(await iptables.save("filter"), "filter");
  } catch (error) {
    log.error("Failed to execute iptables-save: rules that are refused may be lost", error);
    return undefined;
  }
}

async function natChainsOf(iptables: Iptables, log: Logger): Promise<readonly string[] | undefined> {
  try {
    return await iptables.chainNames("nat");
  } catch (error) {
    log.error("Failed to list the chains of table nat: stale ones will not be deleted", error);
    return undefined;
  }
}
