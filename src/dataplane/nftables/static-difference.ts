/** From one plan of the chains and sets that belong to no service port to another, where the first is in force. */
import type { NftChain } from "../../kernel/nftables/ruleset.ts";
import type { TransactionDraft } from "./draft.ts";
import { digestOf } from "./port-objects.ts";
import type { StaticPlan } from "./table-plan.ts";

/**
 * Adds the difference to a draft. Elements of sets that go are left to others.
 *
 * @param rewrites names of chains to write in any case.
 */
export function changeStatic(
  draft: TransactionDraft,
  before: StaticPlan,
  after: StaticPlan,
  rewrites: ReadonlySet<string>,
): void {
  const hadSets = new Set(before.sets.map(({ name }) => name));
  const hasSets = new Set(after.sets.map(({ name }) => name));
  for (const set of after.sets) if (!hadSets.has(set.name)) draft.add("add-sets", { kind: "add-set", set });
  const hadChains = new Map(before.chains.map((chain) => [chain.name, chain]));
  const hasChains = new Set(after.chains.map(({ name }) => name));
  for (const chain of after.chains) {
    if (rewrites.has(chain.name)) draft.writeChain(chain, "unknown");
    else changeChain(draft, hadChains.get(chain.name), chain);
  }
  for (const name of hadChains.keys()) {
    if (hasChains.has(name)) continue;
    draft.emptyChain(name);
    draft.deleteChain(name);
  }
  for (const name of hadSets) if (!hasSets.has(name)) draft.deleteSharedSet(name);
}

function changeChain(draft: TransactionDraft, before: NftChain | undefined, after: NftChain): void {
  if (before === undefined) draft.writeChain(after, "absent");
  else if (digestOf(before) !== digestOf(after)) draft.writeChain(after, "filled");
}
