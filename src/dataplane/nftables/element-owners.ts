/**
 * Who wants which element of the shared sets and maps: all ports of a Service share its cluster IP, for one. Most keys are
 * wanted by one port at most, and then nothing is remembered here: {@link ElementOwners.replace} is told what was.
 */
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import { equalLists } from "../../model/equal-lists.ts";
import { KeyOwners } from "../shared/key-owners.ts";
import { type ElementChange, sameElement } from "./element-changes.ts";
import type { SharedElement } from "./table-plan.ts";

/** What an owner wants. */
export interface Wants {
  readonly elements: readonly SharedElement[];
  /** As they were found in the kernel, and not as they were planned: others may want the same keys meanwhile. */
  readonly isFound?: boolean;
}

export class ElementOwners {
  readonly #isTracked: (set: string) => boolean;
  readonly #sets = new Map<string, KeyOwners<NftElement>>();
  /** How many elements are wanted, by set. */
  readonly #counts = new Map<string, number>();
  readonly #inUse = new Set<string>();
  #version = 0;

  /**
   * @param isTracked sets of which all elements are remembered. Of the others no two owners want the same key, except where what
   * one of them has was found in the kernel.
   * @default all
   */
  constructor(isTracked: (set: string) => boolean = () => true) {
    this.#isTracked = isTracked;
  }

  /** Sets of which any element is wanted; live. */
  get setsInUse(): ReadonlySet<string> {
    return this.#inUse;
  }

  /** How many elements are wanted of these sets; what several owners want counts for each. */
  countIn(sets: { has(set: string): boolean }): number {
    let sum = 0;
    for (const [set, count] of this.#counts) if (sets.has(set)) sum += count;
    return sum;
  }

  /** Another number whenever {@link setsInUse} changes. */
  get setsVersion(): number {
    return this.#version;
  }

  /** For whom there is an element at a key of a tracked set. */
  ownerAt(set: string, key: string): string | undefined {
    return this.#sets.get(set)?.effective(key)?.owner;
  }

  /** Whether it is remembered who wants what of a set; otherwise no two owners want the same key. */
  remembers(set: string): boolean {
    return this.#sets.has(set);
  }

  /** Whether the element that an owner wants at a key is the one that belongs there. */
  isEffective(owner: string, set: string, key: string): boolean {
    const first = this.ownerAt(set, key);
    return first === undefined || first === owner;
  }

  /**
   * Replaces what an owner wants.
   *
   * @param before as it was given the last time.
   * @returns the keys at which the kernel must change.
   */
  replace(owner: string, before: Wants, after: Wants): ElementChange[] {
    const isPlanned = before.isFound !== true && after.isFound !== true;
    if (!isPlanned) return this.#replace(owner, { before, after });
    const { replaced, lost, gained } = this.#differing(before.elements, after.elements);
    if (lost.length + gained.length === 0) return replaced;
    return [...replaced, ...this.#replace(owner, { before: { elements: lost }, after: { elements: gained } })];
  }

  /**
   * Most of what a change leaves as it is stands at the same place, and what it replaces as well: that needs no look at anything
   * else.
   */
  #differing(before: readonly SharedElement[], after: readonly SharedElement[]) {
    const replaced: ElementChange[] = [];
    const lost: SharedElement[] = [];
    const gained: SharedElement[] = [];
    for (let index = 0; index < Math.max(before.length, after.length); index += 1) {
      const old = before[index];
      const now = after[index];
      if (old !== undefined && now !== undefined && hasSameKey(old, now)) {
        if (sameElement(old.element, now.element)) continue;
        if (!this.#isTracked(now.set) && !this.remembers(now.set)) {
          replaced.push({ set: now.set, before: old.element, after: now.element });
          continue;
        }
      }
      if (old !== undefined) lost.push(old);
      if (now !== undefined) gained.push(now);
    }
    return { replaced, lost, gained };
  }

  #replace(owner: string, { before, after }: { readonly before: Wants; readonly after: Wants }): ElementChange[] {
    const changes: ElementChange[] = [];
    const tracked = new Map<string, { before: [string, NftElement][]; after: [string, NftElement][] }>();
    const trackedOf = (set: string) => {
      const lists = tracked.get(set) ?? { before: [], after: [] };
      tracked.set(set, lists);
      return lists;
    };
    const left = new Map<string, SharedElement>();
    for (const shared of before.elements) {
      const { set, element } = shared;
      const key = elementKey(element.key);
      this.#count(set, -1);
      if (this.#tracks(set, key)) trackedOf(set).before.push([key, element]);
      else left.set(idOf(set, key), shared);
    }
    for (const { set, element } of after.elements) {
      const key = elementKey(element.key);
      this.#count(set, 1);
      if (after.isFound === true || this.#tracks(set, key)) {
        trackedOf(set).after.push([key, element]);
        continue;
      }
      const id = idOf(set, key);
      const old = left.get(id)?.element;
      left.delete(id);
      if (!sameElement(old, element)) changes.push({ set, before: old, after: element });
    }
    for (const { set, element } of left.values()) changes.push({ set, before: element, after: undefined });
    for (const [set, lists] of tracked) this.#replaceTracked(owner, set, lists, changes);
    this.#settle(before.elements);
    this.#settle(after.elements);
    return changes;
  }

  #replaceTracked(
    owner: string,
    set: string,
    {
      before,
      after,
    }: { readonly before: Iterable<[string, NftElement]>; readonly after: Iterable<[string, NftElement]> },
    changes: ElementChange[],
  ): void {
    let owners = this.#sets.get(set);
    if (owners === undefined) {
      owners = new KeyOwners();
      this.#sets.set(set, owners);
    }
    const touched = new Map<string, NftElement | undefined>();
    owners.replace(owner, before, after, touched);
    for (const [key, old] of touched) {
      const now = owners.get(key);
      if (!sameElement(old, now)) changes.push({ set, before: old, after: now });
    }
  }

  #tracks(set: string, key: string): boolean {
    return this.#isTracked(set) || this.#sets.get(set)?.has(key) === true;
  }

  #count(set: string, by: 1 | -1): void {
    this.#counts.set(set, (this.#counts.get(set) ?? 0) + by);
  }

  /** Which of these sets are in use by now. */
  #settle(elements: readonly SharedElement[]): void {
    for (const { set } of elements) {
      const isInUse = (this.#counts.get(set) ?? 0) > 0;
      if (isInUse === this.#inUse.has(set)) continue;
      if (isInUse) this.#inUse.add(set);
      else this.#inUse.delete(set);
      this.#version += 1;
    }
  }
}

function hasSameKey(a: SharedElement, b: SharedElement): boolean {
  return a.set === b.set && equalLists(a.element.key, b.element.key);
}

function idOf(set: string, key: string): string {
  return `${set} ${key}`;
}
