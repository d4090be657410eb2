/** Whether a table in the kernel can be changed into ours, or must be made again. Pure. */
import type { NftChainContent, NftSetContent, NftTableContent } from "../../kernel/nftables/nftables.ts";
import type { NftHook, NftSet } from "../../kernel/nftables/ruleset.ts";
import { sharedSetOfAny } from "./layouts.ts";
import { isAffinitySet, isServiceChain } from "./names.ts";
import type { StaticPlan } from "./table-plan.ts";

const AFFINITY_SET: Omit<NftSet, "name"> = { key: ["address"], isMap: false, timeoutSeconds: 1 };

/**
 * False for a table with flags or with chains or sets of another kind (an old version's, or another program's) under our
 * names: a hook, a type, a key or a flag is given once and for all. What can be changed in place does not count: a policy,
 * being dormant, the timeout of a set. A table of the other layout has our shape.
 */
export function hasOurShape(content: NftTableContent, plan: StaticPlan): boolean {
  if (content.hasOtherFlags) return false;
  for (const { name, hook } of plan.chains) {
    const present = content.chains.get(name);
    if (present !== undefined && !sameHook(present.hook, hook)) return false;
  }
  for (const [name, { hook }] of content.chains) if (hook !== undefined && isServiceChain(name)) return false;
  for (const [name, present] of content.sets) {
    const ours = isAffinitySet(name) ? AFFINITY_SET : sharedSetOfAny(name);
    if (ours !== undefined && !isOfKind(present, ours)) return false;
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
    present.hasTargets === set.hasTargets &&
    present.hasRanges === set.hasRanges &&
    present.key?.join() === set.key.join() &&
    isDynamic === (set.timeoutSeconds !== undefined)
  );
}
