/**
 * The outgoing connections and UDP sessions of this process, so that it recognises them when they come back: an endpoint
 * may be an address that leads to the proxy again. Each connection would then cause the next until no descriptor is left,
 * and a datagram would circulate forever.
 */
import { joinHostPort } from "../net/ip.ts";
import type { Destination } from "./relay.ts";

/** Why a client is refused. */
export const LOOP = "a loop: the endpoint leads back to this proxy";

/**
 * A Service may lead to another one, and that one to a third. A program on this host may also get the source port of an
 * earlier connection of ours: every fifth time if both connect often (measured), and so six times in a row within minutes.
 */
const MAX_HOPS = 32;

/**
 * A closed connection may still be waiting to be accepted, and cause the next one. It is not remembered for longer, since
 * another program on this host may soon get its port.
 */
const REMEMBERED_MS = 200;

export class OwnDials {
  readonly #nowMs: () => number;
  /** How often a connection has passed through here, this time included; by its local address and port. */
  readonly #hops = new Map<string, number>();
  /** When connections were closed, the oldest first. */
  readonly #closed = new Map<string, number>();

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  get size(): number {
    return this.#hops.size;
  }

  /** Whether `client` is a connection that has passed through here too often. */
  isLoop(client: Destination): boolean {
    return this.#hopsOf(client) >= MAX_HOPS;
  }

  /**
   * Notes a connection that is made from `local` for `client`.
   *
   * @returns a function to call when it is closed.
   */
  add(local: Destination, client: Destination): () => void {
    this.#forgetOld();
    const key = keyOf(local);
    this.#hops.set(key, this.#hopsOf(client) + 1);
    this.#closed.delete(key);
    return () => void this.#closed.set(key, this.#nowMs());
  }

  #hopsOf(client: Destination): number {
    return this.#hops.get(keyOf(client)) ?? 0;
  }

  #forgetOld(): void {
    const untilMs = this.#nowMs() - REMEMBERED_MS;
    for (const [key, closedMs] of this.#closed) {
      if (closedMs > untilMs) return;
      this.#closed.delete(key);
      this.#hops.delete(key);
    }
  }
}

function keyOf({ address, port }: Destination): string {
  return joinHostPort(address, port);
}
