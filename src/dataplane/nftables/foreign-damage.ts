/** What changes of other programs mean for the rules of this one. */
import type { NftForeignChange } from "../../kernel/nftables/nftables.ts";
import { isFixedChain, sharedSetOfAny } from "./layouts.ts";
import { isAffinitySet, isServiceChain } from "./names.ts";
import type { InstalledPort } from "./port-objects.ts";

/** Confined to chains and sets that are known, or anything. */
type ForeignDamage =
  | {
      readonly kind: "known";
      /** Service ports that a damaged chain or affinity set belongs to. */
      readonly ports: ReadonlySet<string>;
      /** All that was damaged, by name: chains and sets, of service ports and shared ones. */
      readonly names: ReadonlySet<string>;
    }
  | { readonly kind: "total" }
  /** There is a chain that was not: one of ours may have another name now. */
  | { readonly kind: "unknown" };

/** Undefined when nothing of ours was touched: others may keep chains and sets of their own in the table. Pure. */
export function assessDamage(
  change: NftForeignChange,
  installed: ReadonlyMap<string, InstalledPort>,
): ForeignDamage | undefined {
  if (change.isTotal) return { kind: "total" };
  const names = new Set<string>();
  const ofServices = new Set<string>();
  let isUnknown = false;
  for (const chain of change.chains) {
    if (isServiceChain(chain)) ofServices.add(chain);
    else if (isFixedChain(chain)) names.add(chain);
    else if (change.defined.has(chain)) isUnknown = true;
  }
  for (const set of change.sets) {
    if (isAffinitySet(set)) ofServices.add(set);
    else if (sharedSetOfAny(set) !== undefined) names.add(set);
  }
  if (names.size + ofServices.size === 0) return isUnknown ? { kind: "unknown" } : undefined;
  const ports = new Set<string>();
  for (const [owner, { chains, affinitySets }] of ofServices.size > 0 ? installed : []) {
    for (const name of [...chains.keys(), ...affinitySets.keys()]) {
      if (!ofServices.delete(name)) continue;
      ports.add(owner);
      names.add(name);
    }
  }
  // Objects with our names that no port has must go; and those that were made again may be of another kind.
  const isOfAnyKind = [...names].some((name) => change.defined.has(name));
  return ofServices.size > 0 || isOfAnyKind || isUnknown ? { kind: "total" } : { kind: "known", ports, names };
}

/** Chains and sets that others have touched, and that are not repaired yet. */
export class OpenDamage {
  #names = new Set<string>();
  /** Of the newest commit among those that did. */
  #generation = 0;
  /** In which the table was read for the last time. */
  #readIn: number | undefined;

  get size(): number {
    return this.#names.size;
  }

  /** Gives them away, to be repaired. */
  take(): ReadonlySet<string> {
    const names = this.#names;
    if (names.size > 0) this.#names = new Set();
    return names;
  }

  /** Puts back what could not be repaired. */
  add(names: Iterable<string>): void {
    for (const name of names) this.#names.add(name);
  }

  /** Notes what a commit has touched. @returns false when the table was read later, and shows it. */
  note(names: Iterable<string>, generation: number): boolean {
    if (this.#isRead(generation)) return false;
    this.add(names);
    this.#generation = generation;
    return true;
  }

  /** Notes that the table was read: others may have changed it, and been announced, until then. */
  read(generation: number): void {
    this.#readIn = generation;
    if (this.#isRead(this.#generation)) this.#names = new Set();
  }

  /** Generations wrap. */
  #isRead(generation: number): boolean {
    return this.#readIn !== undefined && ((generation - this.#readIn) | 0) <= 0;
  }
}
