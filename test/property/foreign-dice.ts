/** Random words for rules of other programs: the same for the same seed. */
import { seededRandom } from "../../src/trace/seeded-random.ts";

/** What rules compare. */
export interface Vocabulary {
  readonly addresses: readonly string[];
  readonly networks: readonly string[];
  readonly ports: readonly number[];
}

/** What only some kernels have. */
export type Extra = "flow" | "queue" | "sctp" | "ipvs";

/** How often a word is the one that was chosen first. */
const OFTEN = 0.4;

export class Dice {
  readonly isIPv6: boolean;
  /** Whether there may be what hands packets to others, of which no walk knows what they do. */
  readonly isWide: boolean;
  readonly extras: ReadonlySet<Extra>;
  readonly #random: () => number;
  readonly #favourites = new Map<string, string>();
  readonly #words: Vocabulary;

  constructor(seed: number, words: Vocabulary, isWide: boolean, extras: ReadonlySet<Extra>) {
    this.#random = seededRandom(seed * 7_919 + 17);
    this.#words = words;
    this.isWide = isWide;
    this.extras = extras;
    this.isIPv6 = words.networks.some((network) => network.includes(":"));
  }

  /** As nft names the family. */
  get ip(): string {
    return this.isIPv6 ? "ip6" : "ip";
  }

  below(count: number): number {
    return Math.floor(this.#random() * count);
  }

  odds(odds: number): boolean {
    return this.#random() < odds;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T; // lists here are not empty
  }

  /** One of the texts, of which only that one is made. */
  one(makers: readonly (() => string)[]): string {
    return this.pick(makers)();
  }

  times<T>(least: number, more: number, make: () => T): T[] {
    return Array.from({ length: least + this.below(more) }, make);
  }

  /** Often one that other rules of the set have, too. */
  address(): string {
    return this.#often("address", () => this.pick(this.#words.addresses));
  }

  network(): string {
    return this.pick(this.#words.networks);
  }

  port(): number {
    return Number(this.#often("port", () => String(this.pick(this.#words.ports))));
  }

  /** One of the list, often the one that was taken before: programs that never meet a packet together show nothing. */
  oftenSame<T extends string>(list: readonly T[]): T {
    const known = list.find((one) => one === this.#favourites.get("word"));
    const chosen = known !== undefined && this.odds(OFTEN) ? known : this.pick(list);
    if (!this.#favourites.has("word")) this.#favourites.set("word", chosen);
    return chosen;
  }

  #often(kind: string, make: () => string): string {
    const known = this.#favourites.get(kind);
    if (known !== undefined && this.odds(OFTEN)) return known;
    const made = make();
    if (known === undefined) this.#favourites.set(kind, made);
    return made;
  }

  place(): string {
    return this.odds(0.7) ? this.address() : this.network();
  }

  /** An address with a port. */
  end(port: number | string = this.port()): string {
    return this.isIPv6 ? `[${this.address()}]:${port}` : `${this.address()}:${port}`;
  }

  /** Two elements of a set, or one. */
  two(of: () => string | number): string {
    return [...new Set([of(), of()])].join(", ");
  }

  /** Two keys of a map with their values, or one. */
  map(key: () => string | number, value: () => string | number): string {
    return [...new Set([key(), key()])].map((one) => `${one} : ${value()}`).join(", ");
  }
}
