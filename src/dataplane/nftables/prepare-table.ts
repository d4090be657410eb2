/** What a table with many new service ports gets before the transaction that brings it into force. */
import type { NftTableContent } from "../../kernel/nftables/nftables.ts";
import { type PreparationOptions, type PreparedObjects, prepareChains } from "./preparation.ts";
import { prepareElements } from "./prepare-elements.ts";
import type { WantedTable } from "./reconcile.ts";
import type { TableState } from "./table-state.ts";

/**
 * @param content undefined when there is no table.
 * @param state of what is wanted; not to be changed meanwhile.
 * @returns what was committed; undefined when that is nothing. What the kernel refuses is left to the transaction that
 * follows; rejects for what is no operation's fault.
 */
export async function prepareTable(
  content: NftTableContent | undefined,
  wanted: WantedTable,
  state: TableState,
  options: PreparationOptions,
): Promise<PreparedObjects | undefined> {
  // Where services own chains, elements lead to them: these come with the rules.
  const chains = await prepareChains(content, wanted, options);
  return chains ?? (await prepareElements(content, state, options));
}
