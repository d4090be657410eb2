/** Sets and maps, named or inside a rule. An index finds elements with exact keys without a scan. */

import { elementOf, partsOf, textOf } from "../../kernel/nftables/json.ts";
import type { Entry } from "../netfilter/program.ts";
import { PatternIndex } from "../pattern-index.ts";
import type { Key } from "../question.ts";
import { fits, keyText, type Parts, type Pattern, type Scalar, type SomeParts } from "../value.ts";
import { type Names, patternOf } from "./constant.ts";

export interface Found {
  /** The element's value as JSON, in maps. */
  readonly data: unknown;
  readonly comment: string | undefined;
}

/** An element with other patterns than exact values. */
interface WithPatterns {
  readonly key: readonly Pattern[];
  readonly found: Found;
}

const NO_PATTERN: Pattern = { kind: "exact", value: "" };

export class SetIndex {
  readonly name: string;
  /** Whether packets fill it, so that the listed elements may not be all. */
  readonly isFilledByPackets: boolean;
  /** Whether a packet that adds a key goes on depends on a rate. */
  readonly hasRate: boolean;
  /** Whether a packet can have added a key. */
  canAdd: (key: Parts) => boolean = () => true;
  readonly #isMap: boolean;
  readonly #names: readonly (Names | undefined)[];
  readonly #keys: Key[] = [];
  readonly #remembered = new Set<string>();
  readonly #gone = new Map<string, Found>();
  /** Elements still to be indexed: packets never look into most sets. */
  #elements: readonly unknown[];
  readonly #exact = new Map<string, Found>();
  /** By index of a part: keys without it → its numbers. */
  readonly #numbers = new Map<number, Map<string, readonly number[]>>();
  readonly #patterns: WithPatterns[] = [];
  #byFirst: PatternIndex<WithPatterns> | undefined;
  #catchAll: Found | undefined;
  #isUnclear = false;

  /** @param elements as in JSON. @param names words for the numbers in each part of the keys. */
  constructor(
    name: string,
    isMap: boolean,
    elements: readonly unknown[],
    names: readonly (Names | undefined)[],
    isFilledByPackets = false,
    hasRate = false,
  ) {
    this.name = name;
    this.isFilledByPackets = isFilledByPackets;
    this.hasRate = hasRate;
    this.#isMap = isMap;
    this.#names = names;
    this.#elements = elements;
  }

  /** Whether it has elements that are not understood. */
  get isUnclear(): boolean {
    this.#index();
    return this.#isUnclear;
  }

  /** The keys of its elements; undefined if one is not understood. */
  get keys(): readonly Key[] | undefined {
    return this.isUnclear ? undefined : this.#keys;
  }

  #index(): void {
    const elements = this.#elements;
    if (elements.length === 0) return;
    this.#elements = [];
    for (const element of elements) {
      if (!this.#isMap) this.#add(element, undefined);
      else if (Array.isArray(element)) this.#add(element[0], element[1]);
      else this.#isUnclear = true;
    }
  }

  #add(element: unknown, data: unknown): void {
    const { val: key, comment, limit, quota, "ct count": count } = elementOf(element);
    const hasRate = [limit, quota, count].some((rate) => rate !== undefined);
    const found: Found = { data, comment: textOf(comment) };
    if (key === "*" && !hasRate) {
      this.#catchAll = found;
      return;
    }
    const patterns = patternsOf(key, this.#names);
    // Whether the key is found depends on what the element has let through so far.
    if (patterns === undefined || hasRate) {
      this.#isUnclear = true;
      return;
    }
    this.#keys.push({ patterns, outcome: data === undefined ? "" : JSON.stringify(data) });
    const exact = patterns.flatMap((pattern) => (pattern.kind === "exact" ? [pattern.value] : []));
    if (exact.length === patterns.length) this.#exact.set(keyText(exact), found);
    else this.#patterns.push({ key: patterns, found });
  }

  /** Adds or takes out an entry, as a packet does: one that is there keeps its value. */
  remember({ key, data, isGone }: Pick<Entry, "key" | "data" | "isGone">): void {
    this.#index();
    const found = this.#exact.get(key);
    if (isGone !== true) {
      if (found !== undefined) return;
      this.#remembered.add(key);
      this.#exact.set(key, { data: data && { concat: data }, comment: undefined });
    } else if (found !== undefined) {
      if (!this.#remembered.delete(key)) this.#gone.set(key, found);
      this.#exact.delete(key);
    }
  }

  /** Undoes what {@link remember} did. */
  forget(): void {
    for (const key of this.#remembered) this.#exact.delete(key);
    for (const [key, found] of this.#gone) this.#exact.set(key, found);
    this.#remembered.clear();
    this.#gone.clear();
  }

  /** Whether it may have a key that is not listed. */
  mayHave(key: Parts): boolean {
    return this.isFilledByPackets && this.canAdd(key);
  }

  /** Whether no element has the parts that are known. @param isNoneNamed whether what is not known is none that is named. */
  excludes(parts: SomeParts, isNoneNamed = false): boolean {
    if (this.isUnclear || this.#catchAll !== undefined || this.isFilledByPackets) return false;
    const mayFit = (pattern: Pattern, part: Scalar | undefined) =>
      part === undefined ? !isNoneNamed || pattern.kind !== "exact" : fits(pattern, part);
    return !this.#keys.some(({ patterns }) => patterns.every((pattern, at) => mayFit(pattern, parts[at])));
  }

  /** The numbers that a part has in its elements whose other parts are these; undefined if not all have exact keys. */
  numbersAt(parts: Parts, part: number): readonly number[] | undefined {
    this.#index();
    if (this.#catchAll !== undefined || this.#patterns.length > 0 || this.isUnclear) return undefined;
    const others = (key: Parts): string => keyText(key.filter((_, at) => at !== part));
    let found = this.#numbers.get(part);
    if (found === undefined) {
      const keys = this.#keys.map(({ patterns }) =>
        patterns.flatMap((one) => (one.kind === "exact" ? [one.value] : [])),
      );
      const groups = Map.groupBy(keys, others);
      const numbers = (group: readonly Parts[]) => group.map((key) => Number(key[part])).sort((a, b) => a - b);
      found = new Map(Array.from(groups, ([key, group]) => [key, numbers(group)]));
      this.#numbers.set(part, found);
    }
    return found.get(others(parts)) ?? [];
  }

  lookup(parts: Parts): Found | undefined {
    this.#index();
    const exact = this.#exact.get(keyText(parts));
    if (exact !== undefined) return exact;
    this.#byFirst ??= new PatternIndex(this.#patterns, ({ key: [first = NO_PATTERN] }) => first);
    const fitting = this.#byFirst
      .at(parts[0] ?? "")
      .find(({ key }) => key.length === parts.length && key.every((pattern, at) => fits(pattern, parts[at] ?? "")));
    return fitting === undefined ? this.#catchAll : fitting.found;
  }
}

/** One pattern for each part of a key; undefined if a part is not understood, and for the catch-all key. */
function patternsOf(key: unknown, names: readonly (Names | undefined)[]): Pattern[] | undefined {
  const parts = partsOf(key);
  const patterns = parts.flatMap((part, index) => (key === "*" ? [] : (patternOf(part, names[index]) ?? [])));
  return patterns.length === parts.length ? patterns : undefined;
}
