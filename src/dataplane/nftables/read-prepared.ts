/** What the table holds, with the chains and elements that are made before the transaction that brings it into force. */
import {
  type Nftables,
  NftError,
  type NftExpectation,
  type NftTableContent,
  type NftTransactOptions,
} from "../../kernel/nftables/nftables.ts";
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

/** What is to be in the table before the transaction that follows. */
export interface PreparedTable {
  /** Undefined when there is no table. */
  readonly content: NftTableContent | undefined;
  /** That of the ruleset when it is so, for that transaction; undefined when there is no table. */
  readonly generation: NftTransactOptions["generation"];
}

/**
 * Reads the table, and makes many chains or elements that are missing. With these it is known what the table will hold, and what follows can
 * be worked out while the kernel still takes them. Whether it did, and whether no other program was there, is seen when the generation is asked
 * for: it rejects with `conflict` otherwise.
 */
export async function readPrepared(
  wanted: WantedTable,
  state: TableState,
  { nft, read, early, ...options }: ReadPreparedOptions,
): Promise<PreparedTable> {
  const expected = expectationOf(state);
  const begun = await early?.content();
  const mark = begun?.mark ?? (await nft.mark());
  const content = begun?.content ?? (await read(expected));
  const made = await prepareTable(content, wanted, state, options);
  if (made === undefined && begun === undefined) return { content, generation: content?.generation };
  if (made?.isAll === false) {
    await early?.end();
    const found = await read(expected);
    return { content: found, generation: found?.generation };
  }
  const { generation } = mark;
  const { isDormant = false, hasOtherFlags = false } = content ?? {};
  const chains = both(content?.chains, made?.chains);
  const sets = both(content?.sets, made?.sets);
  return {
    content: { generation, isDormant, hasOtherFlags, chains, sets },
    async generation() {
      const isTaken = begun === undefined || (await begun.isTaken());
      const current = isTaken ? await nft.generationIfAlone(mark) : undefined;
      if (current !== undefined) return current;
      throw new NftError("conflict", "nftables: the table is not as it was prepared: it must be read", undefined);
    },
  };
}

function both<T>(
  present: ReadonlyMap<string, T> | undefined,
  made: ReadonlyMap<string, T> | undefined,
): ReadonlyMap<string, T> {
  if (present === undefined || made === undefined) return present ?? made ?? new Map<string, T>();
  return new Map([...present, ...made]);
}
