/**
 * Frontends that maps have had when they were opened, from an earlier process: which service port goes on with them, and with which of
 * its lists of endpoints.
 */
import type { EndpointList } from "../../kernel/bpf/socket-balancer/endpoint-lists.ts";
import { frontendWords } from "../../kernel/bpf/socket-balancer/maps.ts";

/** Where a service port wants a frontend to lead. */
export interface WantedFrontend {
  /** {@link nameOfKey} of its key. */
  readonly name: string;
  readonly to: "cluster" | "local" | "nothing";
}

/** What there is for a service port. */
interface Claim {
  /** In the order of the frontends; undefined for those that are not there. */
  readonly values: readonly (Uint8Array | undefined)[];
  readonly cluster: EndpointList | undefined;
  readonly local: EndpointList | undefined;
}

/** A list of endpoints, and how many frontends lead to it. */
interface FoundList extends EndpointList {
  users: number;
  /** Frontends of one list that do not agree were being changed when the process ended. */
  isTorn: boolean;
}

/** There may be hundreds of thousands: one text, one value and one list for each is all that is kept. */
export class AdoptedFrontends {
  /** Values of those that no service port has claimed. */
  readonly #found = new Map<string, Uint8Array>();
  readonly #lists = new Map<number, FoundList>();
  /** Ids of lists that service ports go on with. */
  readonly #claimed = new Set<number>();

  /** @param adopt takes over the lists that frontends lead to, and gives back those that can be used. */
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

  /** A service port goes on with what its frontends have. It gets a list only when no frontend of another leads there. */
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
        // Ids of two lists that differ in the lowest bit belong to one service port.
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

/** The bytes of a key as text, one character for each. */
export function nameOfKey(key: Uint8Array): string {
  return Buffer.from(key.buffer, key.byteOffset, key.length).toString("latin1");
}
