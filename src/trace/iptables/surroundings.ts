/** What rules of iptables look at beside the packet. */
import type { IpAddress } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import type { Entry } from "../netfilter/program.ts";
import type { Packet } from "../packet.ts";

/** The IP sets that matches ask. */
export interface IpSets {
  /** Whether the packet is in the set; undefined when there is no such set, or it is of a kind that is not understood. */
  has(name: string, directions: readonly ("src" | "dst")[], packet: Packet): boolean | undefined;
}

/** The lists of `-m recent`, which packets fill. */
export interface RecentLists {
  /** Whether the list has the address, and young enough; undefined when that is not known. */
  has(list: string, address: IpAddress): boolean | undefined;
}

export interface Surroundings {
  readonly facts: NodeFacts;
  readonly sets: IpSets;
  readonly recent: RecentLists;
}

/** Where nothing was given. */
export const NO_SETS: IpSets = { has: () => undefined };
export const UNKNOWN_LISTS: RecentLists = { has: () => undefined };
/** No client has been here before. */
export const EMPTY_LISTS: RecentLists = { has: () => false };

/** The name under which the walk reports an entry that a packet makes in a list of `-m recent`. */
export function recentListName(list: string): string {
  return `recent ${list}`;
}

/** Lists that were empty, and have what packets have left since. */
export class RememberedLists implements RecentLists {
  readonly #entries = new Set<string>();

  has(list: string, address: IpAddress): boolean {
    return this.#entries.has(`${recentListName(list)} ${address}`);
  }

  remember({ set, key }: Entry): void {
    this.#entries.add(`${set} ${key}`);
  }
}
