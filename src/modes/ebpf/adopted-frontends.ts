/**
 * Frontends already in the maps when they were opened, left by an earlier process: assigns them to service ports, with
 * the endpoint lists that they refer to.
 */
import type { EndpointList } from "./socket-balancer/endpoint-lists.ts";
import { frontendWords } from "./socket-balancer/maps.ts";

/** A frontend that a service port wants, and the list that it should refer to. */
export interface WantedFrontend {
  /** {@link nameOfKey} of its key. */
  readonly name: string;
  readonly to: "cluster" | "local" | "nothing";
}

/** What the maps hold for a service port. */
interface Claim {
  /** In the order of the frontends; undefined for missing ones. */
  readonly values: readonly (Uint8Array | undefined)[];
  readonly cluster: EndpointList | undefined;
  readonly local: EndpointList | undefined;
}

/** A list of endpoints, and how many frontends refer to it. */
interface FoundList extends EndpointList {
  users: number;
  /** The frontends of the list disagree: the process ended while it changed them. */
  isTorn: boolean;
}

/** There may be hundreds of thousands: keeps only one string, one value and one list for each. */
export class AdoptedFrontends {
  /** Values of unclaimed frontends. */
  readonly #found = new Map<string, Uint8Array>();
  readonly #lists = new Map<number, FoundList>();
  /** Ids of lists that service ports have claimed. */
  readonly #claimed = new Set<number>();

  /** @param adopt takes over the lists that frontends refer to; returns the usable ones. */
  constructor(
    elements: readonly (readonly [key: Uint8Array, value: Uint8Array])[],
    adopt: (found: readonly EndpointList[]) => readonly EndpointList[],
  ) {
    for (const [key, value] of elements) {
      this.#found.set(nameOfKey(key), value);
      const { id, base, count, held } = frontendWords(value);
      if (count + held === 0) continue;
      const known = this.#lists.get(id);
      if (known === undefined) {
        this.#lists.set(id, { id, base, count, held, users: 1, isTorn: false });
        continue;
      }
      known.users++;
      if (known.base !== base || known.count !== count || known.held !== held) known.isTorn = true;
    }
    const whole = new Set(adopt([...this.#lists.values()].filter(({ isTorn }) => !isTorn)));
    for (const list of this.#lists.values()) if (!whole.has(list)) this.#lists.delete(list.id);
  }

  /** Lets a service port reuse its frontends. It gets a list only if no other port's frontend refers to it. */
  claim(frontends: readonly WantedFrontend[]): Claim {
    const values = frontends.map(({ name }) => this.#take(name));
    const ids = values.map((value) => (value === undefined ? undefined : frontendWords(value).id));
    const own = new Set<number>();
    const listFor = (to: WantedFrontend["to"]): EndpointList | undefined => {
      for (let at = 0; at < ids.length; at++) {
        const id = ids[at];
        if (id === undefined || frontends[at]?.to !== to) continue;
        const list = this.#lists.get(id);
        if (list === undefined || list.users !== ids.filter((one) => one === id).length) continue;
        // Two list ids that differ only in the lowest bit belong to one service port.
        const isFree = !this.#claimed.has(id ^ 1) || own.has(id ^ 1);
        if (!isFree) continue;
        this.#claimed.add(id);
        own.add(id);
        this.#lists.delete(id);
        return { id, base: list.base, count: list.count, held: list.held };
      }
      return undefined;
    };
    return { values, cluster: listFor("cluster"), local: listFor("local") };
  }

  /** What no service port has claimed: keys of frontends, and lists. */
  get left(): { readonly keys: readonly Uint8Array[]; readonly lists: readonly EndpointList[] } {
    const keys = [...this.#found.keys()].map((name) => Uint8Array.from(Buffer.from(name, "latin1")));
    return { keys, lists: [...this.#lists.values()] };
  }

  #take(name: string): Uint8Array | undefined {
    const value = this.#found.get(name);
    if (value !== undefined) this.#found.delete(name);
    return value;
  }
}

/** The bytes of a key as a string, one character per byte. */
export function nameOfKey(key: Uint8Array): string {
  return Buffer.from(key.buffer, key.byteOffset, key.length).toString("latin1");
}
