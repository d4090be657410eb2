/**
 * Ports of this host that belong to a service though the proxy does not serve there: held, so that no other process takes
 * them and waits for clients who never come. Reference userspace.md §1.4.
 */

import { type IpAddress, joinHostPort } from "../../net/ip.ts";
import type { RelayProtocol, Relays } from "../../relay/relay.ts";

export interface HeldPort {
  readonly protocol: RelayProtocol;
  readonly address: IpAddress;
  readonly port: number;
}

interface Hold {
  owner: string;
  readonly socket: AsyncDisposable;
}

/** Each port has one owner; who may own it is decided elsewhere. */
export class HeldPorts {
  readonly #relays: Relays;
  readonly #holds = new Map<string, Hold>();
  readonly #ofOwner = new Map<string, Set<string>>();

  constructor(relays: Relays) {
    this.#relays = relays;
  }

  /** Takes the port for the owner, or hands it over from another. Rejects with a `ListenError`. */
  async hold(owner: string, port: HeldPort): Promise<void> {
    const text = textOf(port);
    const known = this.#holds.get(text);
    if (known === undefined) {
      const socket = await this.#relays.hold(port.protocol, port.address, port.port);
      this.#holds.set(text, { owner, socket });
    } else {
      this.#ofOwner.get(known.owner)?.delete(text);
      known.owner = owner;
    }
    const owned = this.#ofOwner.get(owner);
    if (owned === undefined) this.#ofOwner.set(owner, new Set([text]));
    else owned.add(text);
  }

  /** Gives back what the owner holds, but for these. */
  async keepOnly(owner: string, kept: Iterable<HeldPort>): Promise<void> {
    const owned = this.#ofOwner.get(owner);
    if (owned === undefined) return;
    const wanted = new Set<string>();
    for (const port of kept) wanted.add(textOf(port));
    for (const text of owned) {
      if (wanted.has(text)) continue;
      owned.delete(text);
      await this.#release(text);
    }
    if (owned.size === 0) this.#ofOwner.delete(owner);
  }

  /** Gives everything back. */
  async close(): Promise<void> {
    this.#ofOwner.clear();
    await Promise.all([...this.#holds.keys()].map((text) => this.#release(text)));
  }

  async #release(text: string): Promise<void> {
    const hold = this.#holds.get(text);
    this.#holds.delete(text);
    await hold?.socket[Symbol.asyncDispose]();
  }
}

function textOf({ protocol, address, port }: HeldPort): string {
  return `${joinHostPort(address, port)}/${protocol}`;
}
