/**
 * Who wants which element of the shared sets and maps. Several service ports may claim one key: all ports of a Service share
 * its cluster IP, and external IPs may be shared by anybody. The first claimant by name decides the verdict, so that the
 * outcome never depends on history.
 */
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import { type ElementChange, sameElement } from "./element-changes.ts";
import type { SharedElement } from "./plan-service-port.ts";

/** An element, and the key of the service port that it is for. */
export interface Claim {
  readonly owner: string;
  readonly element: NftElement;
}

export class ElementClaims {
  // Almost every key has one claimant: it stands alone then, in a list otherwise (sorted by owner).
  readonly #sets = new Map<string, Map<string, Claim | readonly Claim[]>>();

  /** All elements that shall be in a set, with whom they are for. */
  *wanted(set: string): Iterable<Claim> {
    for (const claims of this.#sets.get(set)?.values() ?? []) {
      const winner = winnerOf(claims);
      if (winner !== undefined) yield winner;
    }
  }

  /** What shall be at a key of a set. */
  wantedAt(set: string, key: string): NftElement | undefined {
    return winnerOf(this.#sets.get(set)?.get(key))?.element;
  }

  /**
   * Replaces what an owner claims.
   *
   * @returns the keys at which the kernel must change.
   */
  replace(owner: string, before: readonly SharedElement[], after: readonly SharedElement[]): ElementChange[] {
    const touched = new Map<string, { set: string; key: string; before: NftElement | undefined }>();
    const touch = (set: string, key: string) => {
      const id = `${set} ${key}`;
      if (!touched.has(id)) touched.set(id, { set, key, before: this.wantedAt(set, key) });
    };
    for (const { set, element } of before) {
      const key = elementKey(element.key);
      touch(set, key);
      this.#remove(set, key, owner);
    }
    for (const { set, element } of after) {
      const key = elementKey(element.key);
      touch(set, key);
      this.#add(set, key, { owner, element });
    }
    const changes: ElementChange[] = [];
    for (const { set, key, before: old } of touched.values()) {
      const now = this.wantedAt(set, key);
      if (!sameElement(old, now)) changes.push({ set, before: old, after: now });
    }
    return changes;
  }

  #add(set: string, key: string, claim: Claim): void {
    let claims = this.#sets.get(set);
    if (claims === undefined) {
      claims = new Map();
      this.#sets.set(set, claims);
    }
    const present = claims.get(key);
    if (present === undefined) claims.set(key, claim);
    else claims.set(key, [...listOf(present).filter(({ owner }) => owner !== claim.owner), claim].sort(byOwner));
  }

  #remove(set: string, key: string, owner: string): void {
    const claims = this.#sets.get(set);
    const present = claims?.get(key);
    if (claims === undefined || present === undefined) return;
    const rest = listOf(present).filter((claim) => claim.owner !== owner);
    const [only] = rest;
    if (only === undefined) claims.delete(key);
    else claims.set(key, rest.length === 1 ? only : rest);
  }
}

function listOf(claims: Claim | readonly Claim[]): readonly Claim[] {
  return "owner" in claims ? [claims] : claims;
}

function winnerOf(claims: Claim | readonly Claim[] | undefined): Claim | undefined {
  return claims === undefined ? undefined : listOf(claims)[0];
}

function byOwner(a: Claim, b: Claim): number {
  return a.owner < b.owner ? -1 : a.owner > b.owner ? 1 : 0;
}
