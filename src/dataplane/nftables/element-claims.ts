/** Who wants which element of the shared sets and maps: all ports of a Service share its cluster IP, for one. */
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import { Claims } from "../shared/claims.ts";
import { type ElementChange, sameElement } from "./element-changes.ts";
import type { SharedElement } from "./table-plan.ts";

/** An element, and the key of the service port that it is for. */
export interface Claim {
  readonly owner: string;
  /** {@link elementKey} of the element. */
  readonly key: string;
  readonly element: NftElement;
}

export class ElementClaims {
  readonly #sets = new Map<string, Claims<NftElement>>();
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

  /** All elements that shall be in a set, with whom they are for. */
  *wanted(set: string): Iterable<Claim> {
    for (const [key, { owner, value: element }] of this.#sets.get(set)?.entries() ?? []) yield { owner, key, element };
  }

  /** For whom there is an element at a key of a set. */
  ownerAt(set: string, key: string): string | undefined {
    return this.#sets.get(set)?.winner(key)?.owner;
  }

  /**
   * Replaces what an owner claims.
   *
   * @returns the keys at which the kernel must change.
   */
  replace(owner: string, before: readonly SharedElement[], after: readonly SharedElement[]): ElementChange[] {
    const changes: ElementChange[] = [];
    for (const set of new Set([...before, ...after].map((shared) => shared.set))) {
      const claims = this.#claimsOf(set);
      const touched = new Map<string, NftElement | undefined>();
      claims.replace(owner, elementsOf(set, before), elementsOf(set, after), touched);
      if (claims.size > 0 !== this.#inUse.has(set)) {
        if (claims.size > 0) this.#inUse.add(set);
        else this.#inUse.delete(set);
        this.#version += 1;
      }
      for (const [key, old] of touched) {
        const now = claims.get(key);
        if (!sameElement(old, now)) changes.push({ set, before: old, after: now });
      }
    }
    return changes;
  }

  #claimsOf(set: string): Claims<NftElement> {
    let claims = this.#sets.get(set);
    if (claims === undefined) {
      claims = new Claims();
      this.#sets.set(set, claims);
    }
    return claims;
  }
}

function* elementsOf(set: string, shared: readonly SharedElement[]): Iterable<readonly [string, NftElement]> {
  for (const { set: itsSet, element } of shared) if (itsSet === set) yield [elementKey(element.key), element];
}
