/**
 * Connections that this process makes, so that it knows them when they come back: an endpoint may be an address that leads to
 * the proxy again, and then each connection would make the next one until no descriptor is left.
 */
import { joinHostPort } from "../../net/ip.ts";
import type { Destination } from "./relay.ts";

/** A Service may lead to another one, and that one to a third. */
const MAX_HOPS = 4;

export class OwnDials {
  /** Local address and port of an outgoing connection: how often it has passed through here, this time included. */
  readonly #hops = new Map<string, number>();

  /** @returns whether `client` is a connection that passed through here too often. */
  isLoop(client: Destination): boolean {
    return this.#hopsOf(client) >= MAX_HOPS;
  }

  /**
   * A connection from `local` goes out for `client`.
   *
   * @returns what forgets it.
   */
  add(local: Destination, client: Destination): () => void {
    const key = joinHostPort(local.address, local.port);
    this.#hops.set(key, this.#hopsOf(client) + 1);
    return () => void this.#hops.delete(key);
  }

  #hopsOf({ address, port }: Destination): number {
    return this.#hops.get(joinHostPort(address, port)) ?? 0;
  }
}
