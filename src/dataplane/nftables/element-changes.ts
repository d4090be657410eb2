/** Changes of elements of the shared sets and maps, gathered for one transaction. Pure data. */
import type { NftOperation } from "../../kernel/nftables/nftables.ts";
import {
  elementKey,
  equalTargets,
  equalVerdicts,
  type NftElement,
  type NftSet,
} from "../../kernel/nftables/ruleset.ts";

/** One key whose element must change. Absent `after`: delete; absent `before`: add; both: delete and add. */
export interface ElementChange {
  readonly set: string;
  readonly before: NftElement | undefined;
  readonly after: NftElement | undefined;
}

/** Whether the kernel needs no change from one to the other: same value and comment. Pure. */
export function sameElement(a: NftElement | undefined, b: NftElement | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.comment === b.comment && equalVerdicts(a.verdict, b.verdict) && equalTargets(a.target, b.target);
}

/** An operation and the service port on whose behalf it is done; undefined for what belongs to none. */
export interface Step {
  readonly owner: string | undefined;
  readonly operation: NftOperation;
}

/** What is done to one set at a stretch, for one owner. */
interface Run<T> {
  readonly owner: string | undefined;
  readonly items: T[];
}

/** An element, and the key of the service port that it is for; empty when it is for none. */
export interface WantedElement {
  readonly owner: string;
  readonly element: NftElement;
}

interface OwnedChange extends ElementChange {
  readonly owner: string | undefined;
}

interface SetChanges {
  readonly set: NftSet;
  /** By key. */
  readonly changes: Map<string, OwnedChange>;
}

interface SetFill {
  readonly set: NftSet;
  readonly wanted: () => Iterable<WantedElement>;
}

/**
 * At most one change for each key, whichever port asks for it: when one service port gives up an address and another first gets it
 * and then gives it up too, the kernel must see one deletion only.
 */
export class ElementChanges {
  /** In the order in which they were first spoken of. */
  readonly #sets = new Map<string, SetChanges | SetFill>();

  /**
   * All elements of a set that has none.
   *
   * @param wanted asked whenever the operations are.
   */
  fill(set: NftSet, wanted: () => Iterable<WantedElement>): void {
    for (const _any of wanted()) {
      this.#sets.set(set.name, { set, wanted });
      return;
    }
  }

  /** @throws Error for a set that is being filled. */
  add(set: NftSet, { before, after }: ElementChange, owner: string | undefined): void {
    const key = elementKey((after ?? before)?.key ?? []);
    const entry = this.#sets.get(set.name) ?? { set, changes: new Map<string, OwnedChange>() };
    if (!("changes" in entry)) throw new Error(`set ${set.name} is filled already`);
    this.#sets.set(set.name, entry);
    const earlier = entry.changes.get(key);
    const original = earlier === undefined ? before : earlier.before;
    if (sameElement(original, after)) entry.changes.delete(key);
    else entry.changes.set(key, { set: set.name, before: original, after, owner });
  }

  get isEmpty(): boolean {
    for (const entry of this.#sets.values()) if (!("changes" in entry) || entry.changes.size > 0) return false;
    return true;
  }

  /** All deletions; keys of one set that follow each other for the same owner are one operation. */
  *deletions(): Iterable<Step> {
    for (const entry of this.#sets.values()) {
      if (!("changes" in entry)) continue;
      for (const { owner, items: keys } of runsOf(entry.changes.values(), ({ before }) => before?.key)) {
        yield { owner, operation: { kind: "delete-elements", set: entry.set, keys } };
      }
    }
  }

  /** All additions, likewise. */
  *additions(): Iterable<Step> {
    for (const entry of this.#sets.values()) {
      const runs =
        "changes" in entry
          ? runsOf(entry.changes.values(), ({ after }) => after)
          : runsOf(entry.wanted(), ({ element }) => element);
      for (const { owner, items: elements } of runs) {
        yield { owner: owner || undefined, operation: { kind: "add-elements", set: entry.set, elements } };
      }
    }
  }
}

/** What is picked, together where neighbours are done for the same owner. */
function* runsOf<C extends { readonly owner: string | undefined }, T>(
  changes: Iterable<C>,
  pick: (change: C) => T | undefined,
): Iterable<Run<T>> {
  let run: Run<T> | undefined;
  for (const change of changes) {
    const item = pick(change);
    if (item === undefined) continue;
    if (run !== undefined && run.owner === change.owner) run.items.push(item);
    else {
      if (run !== undefined) yield run;
      run = { owner: change.owner, items: [item] };
    }
  }
  if (run !== undefined) yield run;
}
