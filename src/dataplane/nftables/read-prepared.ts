/** What the table holds, once many chains that were missing are made. */
import type { Nftables, NftExpectation, NftTableContent } from "../../kernel/nftables/nftables.ts";
import type { EarlyChains } from "./early-chains.ts";
import type { PreparationOptions } from "./preparation.ts";
import { prepareTable } from "./prepare-table.ts";
import { expectationOf, type WantedTable } from "./reconcile.ts";
import type { TableState } from "./table-state.ts";

export interface ReadPreparedOptions extends PreparationOptions {
  readonly nft: Pick<Nftables, "mark" | "generationIfAlone">;
  readonly read: (expected: NftExpectation) => Promise<NftTableContent | undefined>;
  /** What has been begun before; of use once. */
  readonly early: EarlyChains | undefined;
}

/**
 * Reads the table, and makes many chains or elements that are missing. With these it is known what the table holds, unless the kernel
 * refused some or another program was there: then it is read once more. @returns undefined when there is no table.
 */
export async function readPrepared(
  wanted: WantedTable,
  state: TableState,
  { nft, read, early, ...options }: ReadPreparedOptions,
): Promise<NftTableContent | undefined> {
  const expected = expectationOf(state);
  const begun = await early?.end();
  const mark = begun?.mark ?? (await nft.mark());
  const content = begun?.content ?? (await read(expected));
  const made = await prepareTable(content, wanted, state, options);
  if (made === undefined && begun === undefined) return content;
  const generation = made?.isAll === false ? undefined : await nft.generationIfAlone(mark);
  if (generation === undefined) return await read(expected);
  const { isDormant = false, hasOtherFlags = false, chains = [], sets = [] } = content ?? {};
  return {
    generation,
    isDormant,
    hasOtherFlags,
    chains: made === undefined ? new Map(chains) : new Map([...chains, ...made.chains]),
    sets: made === undefined ? new Map(sets) : new Map([...sets, ...made.sets]),
  };
}
