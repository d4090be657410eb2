/**
 * Ports of this host that belong to a Service although the proxy does not listen there. They are reserved, so that no
 * other process takes them and waits for clients that never come. Reference userspace.md §1.4.
 */

import { familyOf, type IpAddress, joinHostPort, unspecifiedAddress } from "../../net/ip.ts";
import type { RelayProtocol, Relays } from "../../relay/relay.ts";

export interface HeldPort {
  readonly protocol: RelayProtocol;
  readonly address: IpAddress;
  readonly port: number;
}

/** A port of a protocol, at all its addresses. */
interface Place {
  readonly owners: Map<IpAddress, string>;
  /** One socket for all addresses if an owner wants that, else one for each address. */
  readonly sockets: Map<IpAddress, AsyncDisposable>;
}

/**
 * Each port has one owner; the caller decides which. The kernel allows a port to be bound either at all addresses or at
 * single ones, so an external IP of this host whose port is also a node port has no socket of its own.
 */
export class HeldPorts {
  readonly #relays: Relays;
  readonly #places = new Map<string, Place>();
  /** The ports of each owner, by text. */
  readonly #owned = new Map<string, Map<string, HeldPort>>();

  constructor(relays: Relays) {
    this.#relays = relays;
  }

  /** Reserves the port for the owner, or transfers it from another one. Rejects with a `ListenError`. */
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

  /** Releases the owner's ports except these. */
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

  /** Releases everything. */
  async close(): Promise<void> {
    this.#owned.clear();
    const sockets = [...this.#places.values()].flatMap((place) => [...place.sockets.values()]);
    this.#places.clear();
    await Promise.all(sockets.map((socket) => socket[Symbol.asyncDispose]()));
  }

  /** Opens and closes sockets as the owners need. @returns why addresses could not be bound; each call tries them again. */
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
