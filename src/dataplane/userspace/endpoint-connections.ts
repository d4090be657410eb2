/** How many connections and sessions the proxy carries to each endpoint, by service port. */
import { joinHostPort } from "../../net/ip.ts";
import type { Destination } from "../../relay/relay.ts";

export class EndpointConnections {
  readonly #counts = new Map<string, Map<string, number>>();

  /** @param key of the service port. */
  opened(key: string, destination: Destination): void {
    const counts = this.#counts.get(key) ?? new Map<string, number>();
    this.#counts.set(key, counts);
    const text = textOf(destination);
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }

  closed(key: string, destination: Destination): void {
    const counts = this.#counts.get(key);
    const text = textOf(destination);
    const count = (counts?.get(text) ?? 0) - 1;
    if (count > 0) counts?.set(text, count);
    else counts?.delete(text);
    if (counts?.size === 0) this.#counts.delete(key);
  }

  /** By `ip:port`; endpoints without any are not in it. */
  of(key: string): ReadonlyMap<string, number> {
    return this.#counts.get(key) ?? NONE;
  }
}

const NONE: ReadonlyMap<string, number> = new Map();

const textOf = ({ address, port }: Destination): string => joinHostPort(address, port);
