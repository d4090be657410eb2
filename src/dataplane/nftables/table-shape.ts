/** Whether a table in the kernel can be changed into ours, or must be made again. Pure. */
import type { NftChainContent, NftSetContent, NftTableContent } from "../../kernel/nftables/nftables.ts";
import type { NftHook, NftSet } from "../../kernel/nftables/ruleset.ts";
import { SHARED_SETS } from "./compatible/plan-static.ts";
import { isAffinitySet, isServiceChain } from "./names.ts";
import type { StaticPlan } from "./table-plan.ts";

/**
 * False for a table with flags or with chains or sets of another kind (an old version's, or somebody else's) under our
 * names: a hook, a type, a key or a flag is given once and for all. What can be changed in place does not count: a policy,
 * being dormant, the timeout of a set.
 */
export function hasOurShape(content: NftTableContent, plan: StaticPlan): boolean {
  if (content.hasOtherFlags) return false;
  for (const { name, hook } of plan.chains) {
    const present = content.chains.get(name);
    if (present !== undefined && !sameHook(present.hook, hook)) return false;
  }
  for (const [name, { hook }] of content.chains) if (hook !== undefined && isServiceChain(name)) return false;
  for (const set of SHARED_SETS) {
    const present = content.sets.get(set.name);
    if (present !== undefined && !isOfKind(present, set)) return false;
  }
  for (const [name, present] of content.sets) {
    if (isAffinitySet(name) && !isOfKind(present, { key: ["address"], isMap: false, timeoutSeconds: 1 })) return false;
  }
  return true;
}

function sameHook(a: NftChainContent["hook"], b: NftHook | undefined): boolean {
  if (a === undefined || a === "other" || b === undefined) return a === b;
  return a.type === b.type && a.hook === b.hook && a.priority === b.priority;
}

/** The length of a timeout can be changed; that there is one cannot. */
function isOfKind(present: NftSetContent, set: Omit<NftSet, "name">): boolean {
  const isDynamic = present.timeoutSeconds !== undefined;
  return (
    present.isMap === set.isMap &&
    present.key?.join() === set.key.join() &&
    isDynamic === (set.timeoutSeconds !== undefined)
  );
}
