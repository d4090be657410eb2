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

export class Dice {
  readonly isIPv6: boolean;
  /** Whether there may be what hands packets to others, of which no walk knows what they do. */
  readonly isWide: boolean;
  readonly extras: ReadonlySet<Extra>;
  readonly #random: () => number;
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

  address(): string {
    return this.pick(this.#words.addresses);
  }

  network(): string {
    return this.pick(this.#words.networks);
  }

  port(): number {
    return this.pick(this.#words.ports);
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
