/**
 * An index of the rules in a long chain by what they require of one field: a chain may have a hundred thousand rules, of which only
 * a handful can match a given packet. A question does not separate values whose rules do the same.
 */
import type { Packet } from "../packet.ts";
import { firstFrom } from "../pattern-index.ts";
import { fieldsQuestion, type Key, type PacketField, type Question } from "../question.ts";
import { orderOf, type Pattern, prefixRange, type Scalar } from "../value.ts";
import type { Chain, Rule, Step } from "./program.ts";

type Prefix = Parameters<typeof prefixRange>[0];

/** What a rule requires of one field. */
export interface RuleKey {
  readonly field: PacketField;
  readonly value: Scalar;
  /** In place of the value, all addresses that begin with it. */
  readonly prefix?: Prefix;
  /** What else it requires, and what it does: the same text for rules that do the same. @default like no other rule */
  rest?(): string;
  /** Whether the rest is a verdict alone. @default it is not */
  isVerdict?(rest: string): boolean;
}

/** The key of a rule that matches no packet. */
export const NEVER = "never";
/** If there are several, another than the first counts where many rules share that. None: any packet may match. */
export type KeysOfRule = readonly RuleKey[] | typeof NEVER;

/** Shorter runs of rules are not indexed. */
const INDEXED_LENGTH = 16;
/** If so many rules do what one of them does, they are indexed by any field; fewer only by destination. */
const SHARED = 4;
/** So many rules are, if each does something else, too. */
const MANY = 1_000;
/** As many rules may share one value before another field tells them apart. */
const MANY_OF_ONE = 64;

interface RulesOfChain {
  readonly name: string;
  readonly length: number;
  keysAt(index: number): KeysOfRule;
  /** Whether a rule of a short chain matches no packet. @default none is known */
  isNever?(index: number): boolean;
  /** @param settled the field that is compared before the rule is looked at. */
  compile(index: number, settled: PacketField | undefined): Rule;
}

/** A chain whose rules are compiled when a packet meets them, and indexed if they are many. */
export function indexedChain({ name, length, keysAt, isNever, compile }: RulesOfChain): Chain {
  const compiled: Rule[] = [];
  let stretches: readonly Stretch[] | undefined;
  const stretchAt = (index: number): Stretch | undefined => {
    stretches ??= length < INDEXED_LENGTH ? [] : stretchesOf(length, keysAt);
    const stretch = stretches[firstFrom(stretches, 0, ({ end }) => end > index)];
    return stretch !== undefined && stretch.start <= index ? stretch : undefined;
  };
  return {
    name,
    length,
    ruleAt(index) {
      if (index < length) compiled[index] ??= compile(index, stretchAt(index)?.fieldAt(index));
      return compiled[index];
    },
    asks: (from) => stretchAt(from)?.asks ?? [],
    firstCandidate(from, packet) {
      let next = stretchAt(from)?.next(from, packet) ?? from;
      while (next < length && isNever?.(next) === true) next += 1;
      return next;
    },
  };
}

/** The steps of an indexed rule: that it is a candidate says what the one at this place asks of the field. */
export function withSettled(steps: readonly Step[], at: number | undefined, field: PacketField | undefined) {
  const isOther = ({ fields }: Question) => fields.length !== 1 || fields[0] !== field;
  return steps.map((step, index) => (index === at ? { ...step, asks: step.asks?.filter(isOther) } : step));
}

function stretchesOf(length: number, keysAt: (index: number) => KeysOfRule): readonly Stretch[] {
  const rules = Array.from({ length }, (_, index) => keysAt(index));
  const first = (keys: KeysOfRule) => (keys === NEVER ? undefined : keys[0]?.value);
  const counts = new Map<Scalar | undefined, number>();
  for (const keys of rules) counts.set(first(keys), (counts.get(first(keys)) ?? 0) + 1);
  const stretches: Stretch[] = [];
  let open: Stretch | undefined;
  for (const [index, keys] of [...rules, []].entries()) {
    const isShared = (counts.get(first(keys)) ?? 0) > MANY_OF_ONE;
    const key = keys === NEVER ? NEVER : ((isShared ? keys[1] : undefined) ?? keys[0]);
    if (key !== undefined) {
      open ??= new Stretch(index);
      open.add(key);
    } else if (open !== undefined) {
      if (open.isUseful) stretches.push(open);
      open = undefined;
    }
  }
  return stretches;
}

/** Rules that require one field to have one value, or to be within prefixes of one length. */
interface Kind {
  readonly field: PacketField;
  /** How many of the last bits of an address are not compared. */
  readonly open: number | undefined;
  readonly all: number[];
  readonly byValue: Map<Scalar | bigint, { readonly pattern: Pattern; readonly rules: number[] }>;
}

/** Rules in a row that each require something of a field. */
class Stretch {
  readonly start: number;
  end: number;
  readonly #kinds = new Map<string, Kind>();
  readonly #fields: (PacketField | undefined)[] = [];
  /** By rule, what it does and among which rules: the order of these makes no difference. */
  readonly #effects: number[] = [];
  readonly #numbers = new Map<string, number>();
  #segment = 0;
  /** The kind and the verdict that all rules of the segment have in common. */
  #common: { readonly kind: string | undefined; readonly verdict: string | undefined } | undefined;
  #hasNever = false;
  #asks: readonly Question[] | undefined;

  constructor(start: number) {
    this.start = start;
    this.end = start;
  }

  get isUseful(): boolean {
    const byDestination = [...this.#kinds].every(([name]) => ALWAYS_INDEXED.has(name));
    const count = this.end - this.start;
    const isShared = count >= MANY || count >= SHARED * new Set(this.#effects).size;
    return this.#hasNever || (count >= INDEXED_LENGTH && (byDestination || isShared));
  }

  add(key: RuleKey | typeof NEVER): void {
    const index = this.end++;
    if (key === NEVER) {
      this.#hasNever = true;
      this.#fields.push(undefined);
      this.#effects.push(-1);
      return;
    }
    const { field, value, prefix } = key;
    const pattern: Pattern = prefix === undefined ? { kind: "exact", value } : prefixRange(prefix);
    const open = pattern.kind === "range" ? (pattern.last - pattern.first + 1n).toString(2).length - 1 : undefined;
    const name = open === undefined ? field : `${field}/${open}`;
    const rest = key.rest?.() ?? `rule ${index}`;
    this.#effects.push(this.#effectOf(name, rest, key.isVerdict?.(rest) === true));
    this.#fields.push(field);
    const kind: Kind = this.#kinds.get(name) ?? { field, open, all: [], byValue: new Map() };
    this.#kinds.set(name, kind);
    kind.all.push(index);
    const at = pattern.kind === "range" ? pattern.first >> BigInt(open ?? 0) : value;
    const same = kind.byValue.get(at);
    if (same === undefined) kind.byValue.set(at, { pattern, rules: [index] });
    else same.rules.push(index);
  }

  /** Rules of one kind match disjoint packets or the same ones, and it is the same which of equal verdicts comes first. */
  #effectOf(kind: string, rest: string, isVerdict: boolean): number {
    const verdict = isVerdict ? rest : undefined;
    const isSameKind = this.#common?.kind === kind;
    const isSameVerdict = verdict !== undefined && this.#common?.verdict === verdict;
    if (isSameKind || isSameVerdict)
      this.#common = { kind: isSameKind ? kind : undefined, verdict: isSameVerdict ? verdict : undefined };
    else {
      this.#segment += 1;
      this.#common = { kind, verdict };
    }
    const text = `${this.#segment} ${rest}`;
    const number = this.#numbers.get(text) ?? this.#numbers.size;
    this.#numbers.set(text, number);
    return number;
  }

  /** The field that every packet has, for which the rule is a candidate, as the rule requires it. */
  fieldAt(index: number): PacketField | undefined {
    return this.#fields[index - this.start];
  }

  /** What {@link next} depends on. */
  get asks(): readonly Question[] {
    if (this.#asks === undefined) {
      const byField = Map.groupBy(this.#kinds.values(), ({ field }) => field);
      this.#asks = Array.from(byField, ([field, kinds]) =>
        fieldsQuestion(
          [field],
          kinds.flatMap(({ byValue }) => Array.from(byValue.values(), (one) => this.#keyOf(one))),
        ),
      );
    }
    return this.#asks;
  }

  #keyOf({ pattern, rules }: { readonly pattern: Pattern; readonly rules: readonly number[] }): Key {
    return { patterns: [pattern], outcome: rules.map((index) => this.#effects[index - this.start]).join() };
  }

  /** The first rule from this one on that can match; the end if there is none. */
  next(from: number, packet: Packet): number {
    let found = this.end;
    for (const { field, open, all, byValue } of this.#kinds.values()) {
      const value = packet[field];
      // What is not known may be anything.
      let rules: readonly number[] = all;
      if (value !== undefined) {
        const at = open === undefined ? value : (orderOf(value) ?? 0n) >> BigInt(open);
        rules = byValue.get(at)?.rules ?? [];
      }
      found = Math.min(found, rules[firstFrom(rules, 0, (at) => at >= from)] ?? found);
    }
    return found;
  }
}

/** Runs of rules by these fields alone are indexed however different they are: a node has many of them. */
const ALWAYS_INDEXED = new Set(["destination", "destinationPort"]);
