/** Writing again what others changed of the chains and sets that belong to no service port. */
import type { Nftables } from "../../kernel/nftables/nftables.ts";
import { SHARED_SETS } from "./compatible/plan-static.ts";
import type { TransactionDraft } from "./draft.ts";
import { changeElements, type DifferenceOptions } from "./element-difference.ts";
import type { StaticPlan } from "./table-plan.ts";
import type { TableState } from "./table-state.ts";

export interface RepairOptions extends DifferenceOptions {
  readonly nft: Nftables;
  /** Asked only when something is damaged: most syncs need no plan of all fixed rules. */
  readonly planStatic: () => StaticPlan;
  /** As it was committed last. */
  readonly state: TableState;
}

/**
 * Adds to an empty draft what brings the fixed chains and shared sets among `damaged` back. Chains are rewritten; of sets,
 * the elements are read and those that differ are changed.
 *
 * @param damaged names of chains and sets; others are left alone.
 * @returns false when a set is not what it should be: only a look at everything can help then.
 */
export async function repairShared(
  draft: TransactionDraft,
  damaged: ReadonlySet<string>,
  { nft, planStatic, state, ...options }: RepairOptions,
): Promise<boolean> {
  if (damaged.size === 0) return true;
  const plan = planStatic();
  for (const chain of plan.chains) if (damaged.has(chain.name)) draft.writeChain(chain, "unknown");
  for (const set of SHARED_SETS) {
    if (!damaged.has(set.name)) continue;
    const present = plan.sets.includes(set) ? await nft.readElements(set) : undefined;
    if (present === undefined) return false;
    await changeElements(draft, set, present, state, options);
  }
  return true;
}
