/**
 * When base chains were registered with the kernel, which calls the last one first among those of one priority. A chain is registered
 * when it is made, and again when its dormant table is woken. No listing tells when that was.
 */
import type { Reply } from "../netlink/frames.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6, nfnetlinkPayload } from "../netlink/nfnetlink.ts";
import type { ChainEvent, ChainHistory } from "./nftables.ts";
import { NFT_MSG_NEWCHAIN, NFT_MSG_NEWTABLE } from "./wire/constants.ts";
import { hookedChain, table as tableCodec } from "./wire/objects.ts";

/** The families of tables that packets of IP meet; include/uapi/linux/netfilter.h has that of inet. */
const FAMILIES: ReadonlyMap<number, string> = new Map([
  ...([[1, "inet"] as const, [NFPROTO_IPV4, "ip"] as const, [NFPROTO_IPV6, "ip6"] as const] as const),
]);
/** The oldest go first: what is not in the log came before what is. */
const MOST = 1_000;

type Logged = ChainEvent & { readonly generation: number };

export class ChainLog {
  /** What came later is in the log. Undefined: notifications were lost, for example. */
  #since: number | undefined;
  #arriving: ChainEvent[] = [];
  #events: Logged[] = [];

  get isKnown(): boolean {
    return this.#since !== undefined;
  }

  forget(): void {
    this.#since = undefined;
    this.#events = [];
  }

  /** All later commits are going to be told. */
  begin(generation: number): void {
    this.#since = generation;
    this.#events = this.#events.filter((event) => isAfter(event.generation, generation));
  }

  /** A notification of a commit, which {@link committed} ends. Throws `malformed`. */
  note(reply: Reply): void {
    const message = reply.type & 0xff;
    if (message !== NFT_MSG_NEWTABLE && message !== NFT_MSG_NEWCHAIN) return;
    const { family, input, start, end } = nfnetlinkPayload(reply);
    const name = FAMILIES.get(family);
    if (name === undefined) return;
    if (message === NFT_MSG_NEWTABLE) {
      // Without flags it is new, or was asleep.
      const { name: table, handle, flags } = tableCodec.read(input, start, end);
      this.#arriving.push({ table: `${name} ${table}`, handle, isCertain: flags === 0 });
    } else {
      const { table, name: chain, handle, hook } = hookedChain.read(input, start, end);
      if (hook !== undefined) this.#arriving.push({ table: `${name} ${table}`, chain, handle, isCertain: false });
    }
    if (this.#arriving.length >= 2 * MOST) this.#arriving = this.#arriving.slice(MOST);
  }

  /** @param events of our own commit, of which nothing is announced. @default what was noted */
  committed(generation: number, events?: readonly ChainEvent[]): void {
    const told = events ?? this.#arriving;
    if (events === undefined) this.#arriving = [];
    if (told.length === 0 || (this.#since !== undefined && !isAfter(generation, this.#since))) return;
    for (const event of told) this.#events.push({ ...event, generation });
    this.#events.sort((a, b) => (a.generation - b.generation) | 0);
    this.#events.splice(0, this.#events.length - MOST);
  }

  /** @param until no commit up to this generation is still to come */
  history(until: number): ChainHistory {
    const events = this.#events.filter(({ generation }) => !isAfter(generation, until));
    return { since: events.at(-1)?.generation ?? 0, until, events };
  }
}

/** Generations wrap at 2^32. */
function isAfter(one: number, other: number): boolean {
  return ((one - other) | 0) > 0;
}
