/**
 * The owners of elements in the shared sets and maps; all ports of a Service share its cluster IP, for example. Most
 * keys have at most one owner and are not tracked: {@link ElementOwners.replace} receives what the owner wanted before.
 */
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import { KeyOwners } from "../../model/key-owners.ts";
import { equalLists } from "../../model/objects.ts";
import { sameElement } from "./draft.ts";
import type { ElementChange, SharedElement } from "./table-plan.ts";

/** What an owner wants. */
export interface Wants {
  readonly elements: readonly SharedElement[];
  /** Found in the kernel instead of planned: other owners may want the same keys by now. */
  readonly isFound?: boolean;
}

export class ElementOwners {
  readonly #isTracked: (set: string) => boolean;
  readonly #sets = new Map<string, KeyOwners<NftElement>>();
  /** How many elements are wanted, by set; sets without any are left out. */
  readonly #counts = new Map<string, number>();
  #version = 0;

  /**
   * @param isTracked whether all elements of a set are tracked. In the other sets no two owners want the same key,
   * unless the elements of one of them were found in the kernel.
   * @default all
   */
  constructor(isTracked: (set: string) => boolean = () => true) {
    this.#isTracked = isTracked;
  }

  /** The sets with any wanted element. */
  get setsInUse(): ReadonlySet<string> {
    return new Set(this.#counts.keys());
  }

  /** Changes whenever {@link setsInUse} does. */
  get setsVersion(): number {
    return this.#version;
  }

  /** The owner of the element that is in effect at a key of a tracked set. */
  ownerAt(set: string, key: string): string | undefined {
    return this.#sets.get(set)?.effective(key)?.owner;
  }

  /** Whether owners of keys of this set are tracked; otherwise no two owners want the same key. */
  remembers(set: string): boolean {
    return this.#sets.has(set);
  }

  /** Whether the element that an owner wants at a key is the one in effect. */
  isEffective(owner: string, set: string, key: string): boolean {
    const first = this.ownerAt(set, key);
    return first === undefined || first === owner;
  }

  /**
   * Replaces what an owner wants.
   *
   * @param before the `after` of the previous call.
   * @returns the keys at which the kernel must change.
   */
  replace(owner: string, before: Wants, after: Wants): ElementChange[] {
    const changes: ElementChange[] = [];
    const replaced = new Map<string, ElementChange & { readonly key: string }>();
    const isPlanned = before.isFound !== true && after.isFound !== true;
    // Most elements keep their value and their place in the plan, and need no key.
    const stays = (index: number) => isPlanned && isSame(before.elements[index], after.elements[index]);
    for (const [index, { set, element }] of before.elements.entries()) {
      if (stays(index)) continue;
      const key = elementKey(element.key);
      replaced.set(`${set} ${key}`, { set, key, before: element, after: undefined });
    }
    const isFirst = before.elements.length === 0 && after.isFound !== true;
    for (const [index, { set, element }] of after.elements.entries()) {
      if (stays(index)) continue;
      if (isFirst && !this.#isTracked(set) && !this.#sets.has(set)) {
        changes.push({ set, before: undefined, after: element });
        continue;
      }
      const key = elementKey(element.key);
      const id = `${set} ${key}`;
      replaced.set(id, { set, key, before: replaced.get(id)?.before, after: element });
    }
    for (const { set, key, before: had, after: has } of replaced.values()) {
      const isShared = this.#isTracked(set) || this.#sets.get(set)?.has(key) === true || after.isFound === true;
      const change = isShared ? this.#replaceShared(owner, set, key, had, has) : { set, before: had, after: has };
      if (!sameElement(change.before, change.after)) changes.push(change);
    }
    // Additions are counted first, so that a set that stays in use never counts as new.
    this.#countAll(after.elements, 1);
    this.#countAll(before.elements, -1);
    return changes;
  }

  #replaceShared(
    owner: string,
    set: string,
    key: string,
    had: NftElement | undefined,
    has: NftElement | undefined,
  ): ElementChange {
    const owners = this.#sets.get(set) ?? new KeyOwners<NftElement>();
    this.#sets.set(set, owners);
    const before = owners.get(key);
    owners.change(owner, key, had, has);
    return { set, before, after: owners.get(key) };
  }

  /** Elements of one set are mostly consecutive. */
  #countAll(elements: readonly SharedElement[], by: 1 | -1): void {
    for (let start = 0; start < elements.length; ) {
      const set = elements[start]?.set ?? "";
      let end = start + 1;
      while (elements[end]?.set === set) end += 1;
      this.#count(set, by * (end - start));
      start = end;
    }
  }

  #count(set: string, by: number): void {
    const before = this.#counts.get(set) ?? 0;
    const after = before + by;
    if (after === 0) this.#counts.delete(set);
    else this.#counts.set(set, after);
    if ((before === 0) !== (after === 0)) this.#version += 1;
  }
}

function isSame(a: SharedElement | undefined, b: SharedElement | undefined): boolean {
  if (a === undefined || b === undefined) return false;
  return a.set === b.set && equalLists(a.element.key, b.element.key) && sameElement(a.element, b.element);
}
