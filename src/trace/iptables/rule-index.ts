/**
 * An index of the rules in a long chain by destination address or port: a chain may have tens of thousands of rules, of which only
 * a handful can match a given packet.
 */
import { withoutQuoted } from "../../kernel/iptables/parser/rule-parts.ts";
import { NOWHERE, type RuleTexts } from "../../kernel/iptables/parser/ruleset.ts";
import type { Packet } from "../packet.ts";
import { type Question, whichOf } from "../question.ts";

/** The start of a rule: an optional source, then the destination. */
const HOST = /^(?:(?:! )?-s \S+ )?-d ([0-9a-f.:]+)\/(?:32|128) /;
const PORT = /(?<!!) --dport (\d+)(?= |$)/;
/** Matches `:80`, but not `::1`. */
const IS_PORT = /^:\d/;

export class RuleIndex {
  readonly #byKey = new Map<string, number[]>();
  readonly #others: number[] = [];
  readonly #length: number;
  #asks: readonly Question[] | undefined;

  constructor(rules: RuleTexts) {
    this.#length = rules.length;
    for (let index = 0; index < rules.length; index += 1) {
      const key = rules.destinationAt === undefined ? destinationIn(rules.at(index) ?? "") : rules.destinationAt(index);
      if (key === NOWHERE) continue;
      if (key === undefined) this.#others.push(index);
      else {
        const same = this.#byKey.get(key);
        if (same === undefined) this.#byKey.set(key, [index]);
        else same.push(index);
      }
    }
  }

  /** What {@link next} depends on. */
  get asks(): readonly Question[] {
    this.#asks ??= [
      whichOf(
        "destination",
        this.#keys((key) => !IS_PORT.test(key)),
      ),
      whichOf(
        "destinationPort",
        this.#keys((key) => IS_PORT.test(key)).map((key) => Number(key.slice(1))),
      ),
    ];
    return this.#asks;
  }

  #keys(isMeant: (key: string) => boolean): string[] {
    return [...this.#byKey.keys()].filter(isMeant);
  }

  /** The first rule from this one on that can match; the number of rules if there is none. */
  next(from: number, { destination, destinationPort }: Packet): number {
    // An unknown port may be any port.
    if (destinationPort === undefined) return from;
    return Math.min(
      after(this.#others, from, this.#length),
      after(this.#byKey.get(destination), from, this.#length),
      after(this.#byKey.get(`:${destinationPort}`), from, this.#length),
    );
  }
}

/** The destination that the text of a rule requires: an address, or `:` and a port. */
function destinationIn(rule: string): string | undefined {
  const host = HOST.exec(rule)?.[1];
  if (host !== undefined) return host;
  const port = PORT.exec(withoutQuoted(rule))?.[1];
  return port === undefined ? undefined : `:${port}`;
}

/** The first of the ascending numbers that is at least `from`. */
function after(indices: readonly number[] | undefined, from: number, none: number): number {
  if (indices === undefined) return none;
  let [low, high] = [0, indices.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((indices[middle] ?? none) < from) low = middle + 1;
    else high = middle;
  }
  return indices[low] ?? none;
}
