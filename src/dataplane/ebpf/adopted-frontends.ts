/**
 * Frontends that maps have had when they were opened, from an earlier process: which service port goes on with them, and with which of
 * its lists of endpoints.
 */
import type { EndpointList } from "../../kernel/bpf/socket-balancer/endpoint-lists.ts";
import { type FrontendWords, frontendWords } from "../../kernel/bpf/socket-balancer/maps.ts";

/** Where a service port wants a frontend to lead. */
export interface WantedFrontend {
  /** Of the map. */
  readonly key: Uint8Array;
  readonly to: "cluster" | "local" | "nothing";
}

/** What there is for a service port. */
export interface Claim {
  /** In the order of the frontends; undefined for those that are not there. */
  readonly values: readonly (Uint8Array | undefined)[];
  readonly cluster: EndpointList | undefined;
  readonly local: EndpointList | undefined;
}

interface Found {
  readonly key: Uint8Array;
  readonly value: Uint8Array;
  readonly id: number;
}

export class AdoptedFrontends {
  /** By the text of the key: those that no service port has claimed. */
  readonly #found = new Map<string, Found>();
  readonly #lists: Map<number, EndpointList>;
  /** How many frontends lead to a list. */
  readonly #users = new Map<number, number>();

  /** @param adopt takes over the lists that frontends lead to, and gives back those that can be used. */
  constructor(
    elements: readonly (readonly [key: Uint8Array, value: Uint8Array])[],
    adopt: (found: readonly EndpointList[]) => readonly EndpointList[],
  ) {
    const lists = new Map<number, EndpointList>();
    const torn = new Set<number>();
    for (const [key, value] of elements) {
      const words = frontendWords(value);
      const { id } = words;
      this.#found.set(textOf(key), { key, value, id });
      if (words.count === 0) continue;
      this.#users.set(id, (this.#users.get(id) ?? 0) + 1);
      const known = lists.get(id);
      if (known === undefined) lists.set(id, listOf(words));
      else if (known.base !== words.base || known.count !== words.count) torn.add(id);
    }
    // Frontends of one list that do not agree were being changed when the process ended.
    const whole = adopt([...lists.values()].filter(({ id }) => !torn.has(id)));
    this.#lists = new Map(whole.map((list) => [list.id, list]));
  }

  /** A service port goes on with what its frontends have. It gets a list only when no frontend of another leads there. */
  claim(frontends: readonly WantedFrontend[]): Claim {
    const mine = frontends.map(({ key }) => this.#take(textOf(key)));
    const usersAmong = (id: number): number => mine.reduce((sum, one) => (one?.id === id ? sum + 1 : sum), 0);
    const listFor = (to: WantedFrontend["to"]): EndpointList | undefined => {
      for (const [at, one] of mine.entries()) {
        if (one === undefined || frontends[at]?.to !== to || usersAmong(one.id) !== this.#users.get(one.id)) continue;
        const list = this.#lists.get(one.id);
        this.#lists.delete(one.id);
        if (list !== undefined) return list;
      }
      return undefined;
    };
    return { values: mine.map((one) => one?.value), cluster: listFor("cluster"), local: listFor("local") };
  }

  /** What no service port has claimed: keys of frontends, and lists. */
  get left(): { readonly keys: readonly Uint8Array[]; readonly lists: readonly EndpointList[] } {
    return { keys: [...this.#found.values()].map(({ key }) => key), lists: [...this.#lists.values()] };
  }

  #take(text: string): Found | undefined {
    const found = this.#found.get(text);
    this.#found.delete(text);
    return found;
  }
}

const textOf = (key: Uint8Array): string => Buffer.from(key.buffer, key.byteOffset, key.length).toString("latin1");

const listOf = ({ id, base, count }: FrontendWords): EndpointList => ({ id, base, count });
