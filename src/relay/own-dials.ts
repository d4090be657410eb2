/**
 * Connections and UDP sessions that this process makes, so that it knows them when they come back: an endpoint may be an address that
 * leads to the proxy again, and then each connection would make the next one until no descriptor is left, and one datagram would go
 * round without end.
 */
import { joinHostPort } from "../net/ip.ts";
import type { Destination } from "./relay.ts";

/** Why a client is sent away. */
export const LOOP = "a loop: the endpoint leads back to this proxy";

/**
 * A Service may lead to another one, and that one to a third. And a program on this host may get the port that an earlier connection has gone
 * out from: every fifth time, when it and the proxy connect often (measured), and so six times in a row within minutes.
 */
const MAX_HOPS = 32;

/**
 * A closed connection may still wait to be accepted, and go on as the next one. Not for long: its port may soon be that of
 * another program's connection from this host.
 */
const REMEMBERED_MS = 200;

export class OwnDials {
  readonly #nowMs: () => number;
  /** By local address and port of an outgoing connection: how often it has passed through here, this time included. */
  readonly #hops = new Map<string, number>();
  /** Closed ones, the first first, and when that was. */
  readonly #closed = new Map<string, number>();

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  get size(): number {
    return this.#hops.size;
  }

  /** @returns whether `client` is a connection that passed through here too often. */
  isLoop(client: Destination): boolean {
    return this.#hopsOf(client) >= MAX_HOPS;
  }

  /**
   * A connection from `local` goes out for `client`.
   *
   * @returns to be called when it is closed.
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
