/**
 * Ports of this host that belong to a service though the proxy does not serve there: held, so that no other process takes
 * them and waits for clients who never come. Reference userspace.md §1.4.
 */

import { familyOf, type IpAddress, joinHostPort, unspecifiedAddress } from "../../net/ip.ts";
import type { RelayProtocol, Relays } from "../../relay/relay.ts";

export interface HeldPort {
  readonly protocol: RelayProtocol;
  readonly address: IpAddress;
  readonly port: number;
}

/** One port of a protocol, at all its addresses. */
interface Place {
  readonly owners: Map<IpAddress, string>;
  /** One at every address where an owner wants that, else one for each address. */
  readonly sockets: Map<IpAddress, AsyncDisposable>;
}

/**
 * Each port has one owner; who may own it is decided elsewhere. The kernel lets a port be bound either at every address or at
 * single ones, so an external IP of this host whose port is also a node port has no socket of its own.
 */
export class HeldPorts {
  readonly #relays: Relays;
  readonly #places = new Map<string, Place>();
  /** By owner, its ports by text. */
  readonly #owned = new Map<string, Map<string, HeldPort>>();

  constructor(relays: Relays) {
    this.#relays = relays;
  }

  /** Takes the port for the owner, or hands it over from another. Rejects with a `ListenError`. */
  async hold(owner: string, port: HeldPort): Promise<void> {
    const { protocol, address } = port;
    const key = `${protocol} ${port.port}`;
    const place = this.#places.get(key) ?? { owners: new Map(), sockets: new Map() };
    this.#places.set(key, place);
    const before = place.owners.get(address);
    place.owners.set(address, owner);
    const failures = await this.#settle(place, port);
    const failure = failures.get(unspecifiedAddress(familyOf(address))) ?? failures.get(address);
    if (failure !== undefined) {
      if (before === undefined) place.owners.delete(address);
      else place.owners.set(address, before);
      await this.#settle(place, port);
      throw failure;
    }
    if (before !== undefined) this.#owned.get(before)?.delete(textOf(port));
    const owned = this.#owned.get(owner) ?? new Map<string, HeldPort>();
    this.#owned.set(owner, owned.set(textOf(port), port));
  }

  /** Gives back what the owner holds, but for these. */
  async keepOnly(owner: string, kept: Iterable<HeldPort>): Promise<void> {
    const owned = this.#owned.get(owner);
    if (owned === undefined) return;
    const wanted = new Set(Array.from(kept, textOf));
    for (const [text, port] of owned) {
      if (wanted.has(text)) continue;
      owned.delete(text);
      const place = this.#places.get(`${port.protocol} ${port.port}`);
      place?.owners.delete(port.address);
      if (place !== undefined) await this.#settle(place, port);
    }
    if (owned.size === 0) this.#owned.delete(owner);
  }

  /** Gives everything back. */
  async close(): Promise<void> {
    this.#owned.clear();
    const sockets = [...this.#places.values()].flatMap((place) => [...place.sockets.values()]);
    this.#places.clear();
    await Promise.all(sockets.map((socket) => socket[Symbol.asyncDispose]()));
  }

  /** Opens and closes sockets as the owners want. @returns why addresses could not be bound; they are tried again each time. */
  async #settle(place: Place, { protocol, address: some, port }: HeldPort): Promise<Map<IpAddress, unknown>> {
    const { owners, sockets } = place;
    const anywhere = unspecifiedAddress(familyOf(some));
    const wanted = new Set(owners.has(anywhere) ? [anywhere] : owners.keys());
    for (const [address, socket] of sockets) {
      if (wanted.has(address)) continue;
      sockets.delete(address);
      await socket[Symbol.asyncDispose]();
    }
    const failures = new Map<IpAddress, unknown>();
    for (const address of wanted) {
      if (sockets.has(address)) continue;
      try {
        sockets.set(address, await this.#relays.hold(protocol, address, port));
      } catch (error) {
        failures.set(address, error);
      }
    }
    if (owners.size === 0) this.#places.delete(`${protocol} ${port}`);
    return failures;
  }
}

function textOf({ protocol, address, port }: HeldPort): string {
  return `${joinHostPort(address, port)}/${protocol}`;
}
