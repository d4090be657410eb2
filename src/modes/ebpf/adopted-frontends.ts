/**
 * Frontends of an earlier process: they say which endpoint list was a service port's. Clients and connected sockets that
 * programs remember speak of it by its id, so the service port goes on with that.
 */
import { frontendWords } from "./socket-balancer/maps.ts";

/** A frontend that a service port wants, and the list that it should refer to. */
interface WantedFrontend {
  /** {@link nameOfKey} of its key. */
  readonly name: string;
  readonly to: "cluster" | "local" | "nothing";
}

export class AdoptedFrontends {
  /** By name: the list's id, 0 for none. There may be hundreds of thousands. */
  readonly #ids: Map<string, number>;
  /** Pairs of list ids that service ports have claimed: the ids of a pair differ in the lowest bit. */
  readonly #claimed = new Set<number>();

  constructor(elements: readonly (readonly [key: Uint8Array, value: Uint8Array])[]) {
    this.#ids = new Map(elements.map(([key, value]) => [nameOfKey(key), frontendWords(value).id]));
  }

  /** @returns the id of the list that a service port's frontends had for the Cluster policy; that for Local is its pair. */
  claim(frontends: readonly WantedFrontend[]): number | undefined {
    let own: number | undefined;
    for (const { name, to } of frontends) {
      const id = this.#ids.get(name) ?? 0;
      this.#ids.delete(name);
      if (own !== undefined || id === 0 || to === "nothing" || this.#claimed.has(id >> 1)) continue;
      this.#claimed.add(id >> 1);
      own = to === "cluster" ? id : id ^ 1;
    }
    return own;
  }

  /** Keys of frontends that no service port has claimed. */
  get left(): readonly Uint8Array[] {
    return [...this.#ids.keys()].map((name) => Uint8Array.from(Buffer.from(name, "latin1")));
  }
}

/** The bytes of a key as a string, one character per byte. */
export function nameOfKey(key: Uint8Array): string {
  return Buffer.from(key.buffer, key.byteOffset, key.length).toString("latin1");
}
