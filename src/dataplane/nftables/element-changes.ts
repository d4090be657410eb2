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
  readonly set: NftSet;
  readonly items: T[];
}

interface OwnedChange extends ElementChange {
  readonly owner: string | undefined;
}

/**
 * At most one change for each key, whoever asks for it: when one service port gives up an address and another first gets it
 * and then gives it up too, the kernel must see one deletion only.
 */
export class ElementChanges {
  readonly #sets = new Map<string, { readonly set: NftSet; readonly changes: Map<string, OwnedChange> }>();

  add(set: NftSet, { before, after }: ElementChange, owner: string | undefined): void {
    const key = elementKey((after ?? before)?.key ?? []);
    let entry = this.#sets.get(set.name);
    if (entry === undefined) {
      entry = { set, changes: new Map() };
      this.#sets.set(set.name, entry);
    }
    const earlier = entry.changes.get(key);
    const original = earlier === undefined ? before : earlier.before;
    if (sameElement(original, after)) entry.changes.delete(key);
    else entry.changes.set(key, { set: set.name, before: original, after, owner });
  }

  /** Number of keys that change. */
  get size(): number {
    let sum = 0;
    for (const { changes } of this.#sets.values()) sum += changes.size;
    return sum;
  }

  /** All deletions; keys of one set that follow each other for the same owner are one operation. */
  *deletions(): Iterable<Step> {
    for (const { owner, set, items } of this.#runs(({ before }) => before?.key)) {
      yield { owner, operation: { kind: "delete-elements", set, keys: items } };
    }
  }

  /** All additions, likewise. */
  *additions(): Iterable<Step> {
    for (const { owner, set, items } of this.#runs(({ after }) => after)) {
      yield { owner, operation: { kind: "add-elements", set, elements: items } };
    }
  }

  *#runs<T>(pick: (change: OwnedChange) => T | undefined): Iterable<Run<T>> {
    for (const { set, changes } of this.#sets.values()) {
      let run: Run<T> | undefined;
      for (const change of changes.values()) {
        const item = pick(change);
        if (item === undefined) continue;
        if (run !== undefined && run.owner === change.owner) run.items.push(item);
        else {
          if (run !== undefined) yield run;
          run = { owner: change.owner, set, items: [item] };
        }
      }
      if (run !== undefined) yield run;
    }
  }
}
