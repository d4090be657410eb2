/** What rules of iptables look at beside the packet. */
import type { IpAddress } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import type { Entry } from "../netfilter/program.ts";
import type { Packet } from "../packet.ts";
import type { Question } from "../question.ts";

/** The IP sets that matches ask. */
export interface IpSets {
  /** Whether the packet is in the set; undefined when there is no such set, or it is of a kind that is not understood. */
  has(name: string, directions: readonly ("src" | "dst")[], packet: Packet): boolean | undefined;
  /** What {@link has} depends on; undefined when the set is not understood. */
  asks(name: string, directions: readonly ("src" | "dst")[]): readonly Question[] | undefined;
}

/** The lists of `-m recent`, which packets fill. */
export interface RecentLists {
  /** Whether the list has the address, and from these seconds; undefined when that is not known. @param seconds undefined: from any time */
  has(list: string, address: IpAddress, seconds: number | undefined): boolean | undefined;
}

export interface Surroundings {
  readonly facts: NodeFacts;
  readonly sets: IpSets;
  readonly recent: RecentLists;
}

/** Where nothing was given. */
export const UNKNOWN_LISTS: RecentLists = { has: () => undefined };

/** The name under which the walk reports an entry that a packet makes in a list of `-m recent`. */
export function recentListName(list: string): string {
  return `recent ${list}`;
}

/** Lists that were empty, and have what packets have left since; also which endpoints clients were led to by what is no rule. */
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

/** What a kernel has in its lists: by list the clients, and how many seconds ago each was seen; undefined where that is not known. */
export type ListedClients = ReadonlyMap<string, ReadonlyMap<string, number | undefined>>;

/** The lists of a kernel, and what packets have left in them since. */
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
