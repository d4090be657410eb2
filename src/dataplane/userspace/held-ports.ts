/**
 * Ports of this host that belong to a service though the proxy does not serve there: held, so that no other process takes
 * them and waits for clients who never come. Reference userspace.md §1.4.
 */

import { familyOf, type IpAddress, isUnspecified, joinHostPort, unspecifiedAddress } from "../../net/ip.ts";
import type { RelayProtocol, Relays } from "../../relay/relay.ts";

export interface HeldPort {
  readonly protocol: RelayProtocol;
  readonly address: IpAddress;
  readonly port: number;
}

interface Hold {
  readonly port: HeldPort;
  owner: string;
  /** Undefined while the hold of the same port at every address keeps others away. */
  socket: AsyncDisposable | undefined;
}

/**
 * Each port has one owner; who may own it is decided elsewhere. The kernel lets a port be bound either at every address or at
 * single ones, so an external IP of this host whose port is also a node port has no socket of its own.
 */
export class HeldPorts {
  readonly #relays: Relays;
  readonly #holds = new Map<string, Hold>();
  /** Those at single addresses, by the text of the same port at every address. */
  readonly #single = new Map<string, Set<Hold>>();
  readonly #ofOwner = new Map<string, Set<string>>();

  constructor(relays: Relays) {
    this.#relays = relays;
  }

  /** Takes the port for the owner, or hands it over from another. Rejects with a `ListenError`. */
  async hold(owner: string, port: HeldPort): Promise<void> {
    const text = textOf(port);
    const known = this.#holds.get(text);
    if (known === undefined) {
      this.#add(text, { port, owner, socket: await this.#take(port) });
    } else {
      // Not to be had when the hold at every address went.
      known.socket ??= await this.#take(port);
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
    const holds = [...this.#holds.values()];
    this.#holds.clear();
    this.#single.clear();
    await Promise.all(holds.map(closed));
  }

  #add(text: string, hold: Hold): void {
    this.#holds.set(text, hold);
    if (isUnspecified(hold.port.address)) return;
    const shared = textOf(everywhere(hold.port));
    const single = this.#single.get(shared);
    if (single === undefined) this.#single.set(shared, new Set([hold]));
    else single.add(hold);
  }

  /** @returns undefined where the hold of every address suffices. */
  async #take(port: HeldPort): Promise<AsyncDisposable | undefined> {
    if (this.#holds.get(textOf(everywhere(port)))?.socket !== undefined) return undefined;
    if (!isUnspecified(port.address)) return await this.#bind(port);
    const single = this.#single.get(textOf(port)) ?? [];
    for (const hold of single) await closed(hold);
    try {
      return await this.#bind(port);
    } catch (error) {
      await this.#bindAgain(single);
      throw error;
    }
  }

  #bind({ protocol, address, port }: HeldPort): Promise<AsyncDisposable> {
    return this.#relays.hold(protocol, address, port);
  }

  /** A port that another process has taken meanwhile is tried again, and reported, with the next {@link hold}. */
  async #bindAgain(holds: Iterable<Hold>): Promise<void> {
    for (const hold of holds) hold.socket = await this.#bind(hold.port).catch(() => undefined);
  }

  async #release(text: string): Promise<void> {
    const hold = this.#holds.get(text);
    this.#holds.delete(text);
    if (hold === undefined) return;
    await closed(hold);
    if (isUnspecified(hold.port.address)) {
      await this.#bindAgain(this.#single.get(text) ?? []);
      return;
    }
    const shared = textOf(everywhere(hold.port));
    const single = this.#single.get(shared);
    single?.delete(hold);
    if (single?.size === 0) this.#single.delete(shared);
  }
}

async function closed(hold: Hold): Promise<void> {
  const { socket } = hold;
  hold.socket = undefined;
  await socket?.[Symbol.asyncDispose]();
}

/** The same port at every address of the host. */
function everywhere(port: HeldPort): HeldPort {
  return { ...port, address: unspecifiedAddress(familyOf(port.address)) };
}

function textOf({ protocol, address, port }: HeldPort): string {
  return `${joinHostPort(address, port)}/${protocol}`;
}
