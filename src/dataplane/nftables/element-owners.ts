/** Who wants which element of the shared sets and maps: all ports of a Service share its cluster IP, for one. */
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import { KeyOwners } from "../shared/key-owners.ts";
import { type ElementChange, sameElement } from "./element-changes.ts";
import type { SharedElement } from "./table-plan.ts";

/** An element, and the key of the service port that it is for. */
export interface OwnedElement {
  readonly owner: string;
  /** {@link elementKey} of the element. */
  readonly key: string;
  readonly element: NftElement;
}

export class ElementOwners {
  readonly #sets = new Map<string, KeyOwners<NftElement>>();
  readonly #inUse = new Set<string>();
  #version = 0;

  /** Sets of which any element is wanted; live. */
  get setsInUse(): ReadonlySet<string> {
    return this.#inUse;
  }

  /** Another number whenever {@link setsInUse} changes. */
  get setsVersion(): number {
    return this.#version;
  }

  /** All elements that should be in a set, with whom they are for. */
  *wanted(set: string): Iterable<OwnedElement> {
    for (const [key, { owner, value: element }] of this.#sets.get(set)?.entries() ?? []) yield { owner, key, element };
  }

  /** For whom there is an element at a key of a set. */
  ownerAt(set: string, key: string): string | undefined {
    return this.#sets.get(set)?.effective(key)?.owner;
  }

  /**
   * Replaces what an owner wants.
   *
   * @returns the keys at which the kernel must change.
   */
  replace(owner: string, before: readonly SharedElement[], after: readonly SharedElement[]): ElementChange[] {
    const changes: ElementChange[] = [];
    for (const set of new Set([...before, ...after].map((shared) => shared.set))) {
      const owners = this.#ownersOf(set);
      const touched = new Map<string, NftElement | undefined>();
      owners.replace(owner, elementsOf(set, before), elementsOf(set, after), touched);
      if (owners.size > 0 !== this.#inUse.has(set)) {
        if (owners.size > 0) this.#inUse.add(set);
        else this.#inUse.delete(set);
        this.#version += 1;
      }
      for (const [key, old] of touched) {
        const now = owners.get(key);
        if (!sameElement(old, now)) changes.push({ set, before: old, after: now });
      }
    }
    return changes;
  }

  #ownersOf(set: string): KeyOwners<NftElement> {
    let owners = this.#sets.get(set);
    if (owners === undefined) {
      owners = new KeyOwners();
      this.#sets.set(set, owners);
    }
    return owners;
  }
}

function* elementsOf(set: string, shared: readonly SharedElement[]): Iterable<readonly [string, NftElement]> {
  for (const { set: itsSet, element } of shared) if (itsSet === set) yield [elementKey(element.key), element];
}
