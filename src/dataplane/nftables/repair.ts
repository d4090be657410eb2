/** Writing again what others changed of the elements that service ports share. */
import type { Nftables } from "../../kernel/nftables/nftables.ts";
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import type { TransactionDraft } from "./draft.ts";
import { changeElements, type DifferenceOptions, type PresentSet } from "./element-difference.ts";
import { sharedSetOfAny } from "./layouts.ts";
import type { TableState } from "./table-state.ts";

interface RepairOptions extends DifferenceOptions {
  readonly nft: Nftables;
  /** As it was committed last. */
  readonly state: TableState;
}

/**
 * Adds to an empty draft what brings the shared sets among `damaged` back: their elements are read, and those that differ are
 * changed.
 *
 * @param damaged names of chains and sets; others than shared sets are left alone.
 * @returns false when a set is not what it should be: only a look at everything can help then.
 */
export async function repairSets(
  draft: TransactionDraft,
  damaged: ReadonlySet<string>,
  { nft, state, ...options }: RepairOptions,
): Promise<boolean> {
  let sets: ReadonlyMap<string, NftSet> | undefined;
  const found: PresentSet[] = [];
  for (const name of damaged) {
    if (sharedSetOfAny(name) === undefined) continue;
    sets ??= new Map(state.planStatic().sets.map((one) => [one.name, one]));
    const set = sets.get(name);
    const present = set && (await nft.readElements(set));
    if (set === undefined || present === undefined) return false;
    if (set.timeoutSeconds !== undefined) {
      // What packets have put in is theirs, as far as it leads to an endpoint of ours.
      state.doubt(name);
      continue;
    }
    found.push({ set, present });
  }
  await changeElements(draft, found, state, options);
  return true;
}
