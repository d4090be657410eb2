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
  readonly set: string;
  readonly owner: string | undefined;
  readonly items: T[];
}

/** An element of a set, and the key of the service port that it is for; empty when it is for none. */
export interface WantedElement {
  readonly set: string;
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

/** All elements of sets that have none. */
interface Filling {
  readonly sets: ReadonlyMap<string, NftSet>;
  readonly wanted: () => Iterable<WantedElement>;
}

/**
 * At most one change for each key, whichever port asks for it: when one service port gives up an address and another first gets it
 * and then gives it up too, the kernel must see one deletion only.
 */
export class ElementChanges {
  /** In the order in which they were first spoken of. */
  readonly #sets = new Map<string, SetChanges>();
  #filling: Filling | undefined;

  /**
   * All elements of sets that have none; once only.
   *
   * @param sets by name.
   * @param wanted asked whenever the operations are.
   */
  fill(sets: ReadonlyMap<string, NftSet>, wanted: () => Iterable<WantedElement>): void {
    for (const _any of wanted()) {
      this.#filling = { sets, wanted };
      return;
    }
  }

  /** @throws Error for a set that is being filled. */
  add(set: NftSet, { before, after }: ElementChange, owner: string | undefined): void {
    if (this.#filling?.sets.has(set.name) === true) throw new Error(`set ${set.name} is filled already`);
    const key = elementKey((after ?? before)?.key ?? []);
    const { changes } = this.#sets.get(set.name) ?? this.#changesOf(set);
    const earlier = changes.get(key);
    if (earlier === undefined) {
      if (!sameElement(before, after)) changes.set(key, { set: set.name, before, after, owner });
    } else if (after === undefined && !sameElement(earlier.after, before)) {
      // What another port has been given already is given up only now.
      changes.set(key, { ...earlier, before });
    } else if (sameElement(earlier.before, after)) changes.delete(key);
    else changes.set(key, { set: set.name, before: earlier.before, after, owner });
  }

  get isEmpty(): boolean {
    if (this.#filling !== undefined) return false;
    for (const { changes } of this.#sets.values()) if (changes.size > 0) return false;
    return true;
  }

  /** All deletions; keys of one set that follow each other for the same owner are one operation. */
  *deletions(): Iterable<Step> {
    for (const { set, changes } of this.#sets.values()) {
      for (const { owner, items: keys } of runsOf(changes.values(), ({ before }) => before?.key)) {
        yield { owner, operation: { kind: "delete-elements", set, keys } };
      }
    }
  }

  /** All additions, likewise. */
  *additions(): Iterable<Step> {
    for (const { set, changes } of this.#sets.values()) {
      for (const { owner, items: elements } of runsOf(changes.values(), ({ after }) => after)) {
        yield { owner, operation: { kind: "add-elements", set, elements } };
      }
    }
    const { sets, wanted } = this.#filling ?? {};
    for (const run of wanted === undefined ? [] : runsOf(wanted(), ({ element }) => element)) {
      const set = sets?.get(run.set);
      if (set === undefined) throw new Error(`set ${run.set} is not among those to be filled`);
      yield { owner: run.owner || undefined, operation: { kind: "add-elements", set, elements: run.items } };
    }
  }

  #changesOf(set: NftSet): SetChanges {
    const entry = { set, changes: new Map<string, OwnedChange>() };
    this.#sets.set(set.name, entry);
    return entry;
  }
}

/** What is picked, together where neighbours are in one set and done for the same owner. */
function* runsOf<C extends { readonly set: string; readonly owner: string | undefined }, T>(
  changes: Iterable<C>,
  pick: (change: C) => T | undefined,
): Iterable<Run<T>> {
  let run: Run<T> | undefined;
  for (const change of changes) {
    const item = pick(change);
    if (item === undefined) continue;
    if (run !== undefined && run.owner === change.owner && run.set === change.set) run.items.push(item);
    else {
      if (run !== undefined) yield run;
      run = { set: change.set, owner: change.owner, items: [item] };
    }
  }
  if (run !== undefined) yield run;
}
