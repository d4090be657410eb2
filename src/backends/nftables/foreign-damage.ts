/** What another program's change means for the rules of this one. Pure. */
import type { NftForeignChange } from "../../kernel/nftables/nftables.ts";
import { CHAINS, isAffinitySet, isServiceChain, SETS } from "./names.ts";
import { BASE_CHAINS } from "./plan-static.ts";
import type { InstalledPort } from "./port-objects.ts";

/** Confined to chains of these service ports, or anything. */
export type ForeignDamage =
  | { readonly kind: "ports"; readonly ports: ReadonlySet<string> }
  | { readonly kind: "total" };

const FIXED_CHAINS: ReadonlySet<string> = new Set([...Object.values(CHAINS), ...BASE_CHAINS]);
const SHARED_SETS: ReadonlySet<string> = new Set(Object.values(SETS));

/** Undefined when nothing of ours was touched: others may keep chains of their own in the table. */
export function assessDamage(
  change: NftForeignChange,
  installed: ReadonlyMap<string, InstalledPort>,
): ForeignDamage | undefined {
  const ofServices = new Set<string>();
  let isTotal = change.isTotal;
  for (const chain of change.chains) {
    if (isServiceChain(chain)) ofServices.add(chain);
    else isTotal ||= FIXED_CHAINS.has(chain);
  }
  for (const set of change.sets) isTotal ||= SHARED_SETS.has(set) || isAffinitySet(set);
  if (isTotal) return { kind: "total" };
  if (ofServices.size === 0) return undefined;
  const ports = new Set<string>();
  for (const [owner, { chains }] of installed) {
    for (const chain of chains.keys()) {
      if (ofServices.delete(chain)) ports.add(owner);
    }
  }
  // What looks like ours and belongs to nobody must go.
  return ofServices.size > 0 ? { kind: "total" } : { kind: "ports", ports };
}
