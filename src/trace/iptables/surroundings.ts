/** What iptables rules depend on besides the packet. */
import type { IpAddress } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import type { Entry } from "../netfilter/program.ts";
import type { Packet } from "../packet.ts";
import type { Question } from "../question.ts";

export interface IpSets {
  /** Whether the packet is in the set; undefined if there is no such set, or its type is not understood. */
  has(name: string, directions: readonly ("src" | "dst")[], packet: Packet): boolean | undefined;
  /** What {@link has} depends on; undefined if the set is not understood. */
  asks(name: string, directions: readonly ("src" | "dst")[]): readonly Question[] | undefined;
}

/** The lists of `-m recent`, which packets fill. */
export interface RecentLists {
  /** Whether the list has the address, seen in the last `seconds`; undefined if not known. @param seconds undefined: at any time */
  has(list: string, address: IpAddress, seconds: number | undefined): boolean | undefined;
}

export interface Surroundings {
  readonly facts: NodeFacts;
  readonly sets: IpSets;
  readonly recent: RecentLists;
}

/** For when no lists are given: everything is unknown. */
export const UNKNOWN_LISTS: RecentLists = { has: () => undefined };

/** The name under which the walk reports an entry that a packet adds to a `-m recent` list. */
export function recentListName(list: string): string {
  return `recent ${list}`;
}

/** The name under which the walk reports that a packet changes an IP set. */
export function ipSetName(set: string): string {
  return `ipset ${set}`;
}

/** Lists that start empty and hold what packets add; also the endpoints that clients got from virtual servers or sockets. */
export class RememberedLists implements RecentLists {
  readonly #entries = new Map<string, Entry>();

  has(list: string, address: IpAddress): boolean {
    return this.#entries.has(`${recentListName(list)} ${address}`);
  }

  remember(entry: Entry): void {
    this.#entries.set(`${entry.set} ${entry.key}`, entry);
  }

  entryOf(set: string, key: string): Entry | undefined {
    return this.#entries.get(`${set} ${key}`);
  }

  forget(): void {
    this.#entries.clear();
  }
}

/** A kernel's lists: for each client, how many seconds ago it was last seen; undefined if not known. */
export type ListedClients = ReadonlyMap<string, ReadonlyMap<string, number | undefined>>;

/** The lists of a proof: the proxy's hold what packets add. Of other lists it is known only that they are empty. */
export function provedLists(listed: ListedClients | undefined, since: RememberedLists): RecentLists {
  return {
    has(list, address) {
      const isKnown = list.startsWith("KUBE-") || listed?.get(list)?.size === 0;
      return since.has(list, address) || (isKnown ? false : undefined);
    },
  };
}

/** A kernel's lists, plus what packets have added since. */
export function kernelLists(listed: ListedClients, since: RememberedLists): RecentLists {
  return {
    has(list, address, seconds) {
      const clients = listed.get(list);
      if (since.has(list, address)) return true;
      if (clients?.has(address) !== true) return false;
      const age = clients.get(address);
      if (seconds === undefined) return true;
      return age === undefined ? undefined : age <= seconds;
    },
  };
}
