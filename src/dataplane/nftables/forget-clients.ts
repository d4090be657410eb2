/** Deletes what the kernel remembers of clients whose endpoint is gone (`flat/clients.ts`). */
import { type Nftables, NftError, type NftOperation } from "../../kernel/nftables/nftables.ts";
import { isClientCurrent } from "./flat/clients.ts";
import { sharedSetOfAny } from "./layouts.ts";
import type { InstalledPort } from "./port-objects.ts";
import type { SharedElement } from "./table-plan.ts";
import type { TableState } from "./table-state.ts";

/** Entries that are deleted in one transaction. */
const AT_ONCE = 1000;

/**
 * Looks through maps of clients. Entries that expire meanwhile are no failure.
 *
 * @param names of the maps; those that do not exist are left out.
 * @param state what service ports have in the kernel by now.
 * @returns how many were deleted. Rejects with an {@link NftError} that says why they cannot be.
 */
export async function forgetClients(nft: Nftables, names: Iterable<string>, state: TableState): Promise<number> {
  let forgotten = 0;
  // Many clients have asked at one service port, whose elements may have to be planned.
  const planned = new Map<InstalledPort, readonly SharedElement[]>();
  const findElements = (set: string, key: string): readonly SharedElement[] | undefined => {
    const port = state.portWith(set, key);
    if (port === undefined) return undefined;
    const elements = planned.get(port) ?? port.elements;
    planned.set(port, elements);
    return elements;
  };
  for (const name of names) {
    const set = sharedSetOfAny(name);
    const entries = (set && (await nft.readElements(set))) ?? [];
    const stale = entries.filter((entry) => !isClientCurrent(name, entry, findElements));
    for (let start = 0; set !== undefined && start < stale.length; start += AT_ONCE) {
      const deletions = stale
        .slice(start, start + AT_ONCE)
        .map(({ key }): NftOperation => ({ kind: "delete-elements", set, keys: [key] }));
      forgotten += await deleteThoseLeft(nft, deletions);
    }
  }
  return forgotten;
}

async function deleteThoseLeft(nft: Nftables, deletions: NftOperation[]): Promise<number> {
  while (deletions.length > 0) {
    try {
      await nft.transact(deletions);
      return deletions.length;
    } catch (error) {
      if (!(error instanceof NftError) || error.code !== "not_found" || error.operation === undefined) throw error;
      deletions.splice(error.operation, 1);
    }
  }
  return 0;
}
