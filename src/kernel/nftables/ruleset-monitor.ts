/**
 * Sees what other programs change in the rulesets of the network namespace, and reports to the owners of tables what was theirs.
 *
 * The kernel announces each object of a commit, and then the commit itself with its generation and the process behind it; what we have
 * committed ourselves it keeps to itself (`notification-filter.ts`). Generations are counted against our commits and those that were
 * announced: where the sums agree, nothing of others is under way.
 */

import { forEachAttribute, zstring } from "../netlink/attributes.ts";
import { NETLINK_NETFILTER } from "../netlink/constants.ts";
import type { Reply } from "../netlink/frames.ts";
import { NFNL_SUBSYS_NFTABLES, nfnetlinkPayload } from "../netlink/nfnetlink.ts";
import { Listeners, subscribe } from "../netlink/subscription.ts";
import type { NftForeignChange, NftMark } from "./nftables.ts";
import * as nft from "./wire/constants.ts";
import type { NftablesClient } from "./wire/nftables-client.ts";
import { generation as generationCodec } from "./wire/objects.ts";

/** How long announcements may lag behind a generation that was read. */
const CATCH_UP_MS = 250;
const CATCH_UP_STEP_MS = 2;
/** Sets of these names come and go with the rules that use them; none of ours that has a name of its own begins so, but a renamed chain may. */
const ANONYMOUS = "_";
const NOTHING: ReadonlySet<string> = new Set();

/** A table of a family. */
interface WatchedTable {
  readonly nfproto: number;
  readonly table: string;
}

/** What others have changed in a table since the last commit. */
interface Touched {
  readonly chains: Set<string>;
  readonly sets: Set<string>;
  readonly defined: Set<string>;
  isTotal: boolean;
}

interface Watcher extends WatchedTable {
  readonly onChange: (change: NftForeignChange) => void;
  /** From this generation on nothing of others was missed. Undefined: that is not known yet. */
  since: number | undefined;
  /** Undefined: nothing. */
  touched: Touched | undefined;
  /** Generation of the last foreign change. */
  touchedAt: number | undefined;
}

interface RulesetMonitorOptions {
  readonly client: Pick<NftablesClient, "generation" | "portId" | "hasPort">;
  /** For announcements. @default that of subscriptions */
  readonly receiveBufferBytes?: number;
  /** @default the kernel's announcements */
  readonly listen?: typeof subscribe;
}

export class RulesetMonitor {
  readonly #options: RulesetMonitorOptions;
  readonly #watchers = new Listeners<Watcher>(() => this.#stop?.abort());
  #stop: AbortController | undefined;
  /** Up to then all is known. */
  #base: NftMark | undefined;
  /** Generations of commits of others that were announced since then. */
  #foreign: number[] = [];
  /** How many those were when announcements were lost; the kernel drops more without a word until all that wait have been taken. */
  #lostAfter: number | undefined;

  constructor(options: RulesetMonitorOptions) {
    this.#options = options;
  }

  /**
   * Tells of foreign changes to the table until the signal aborts, and then resolves. Rejects when notifications cannot be
   * received (any more).
   */
  watch(target: WatchedTable, onChange: Watcher["onChange"], signal: AbortSignal): Promise<void> {
    const watcher: Watcher = { ...target, onChange, since: undefined, touched: undefined, touchedAt: undefined };
    const watching = this.#watchers.join(watcher, signal);
    if (signal.aborted) return watching;
    if (this.#stop?.signal.aborted !== false) this.#start();
    // A commit may be half announced.
    this.#begin([watcher]);
    return watching;
  }

  /**
   * Whether no other program has touched the table after generation `since`, up to `until`. False when that is not known,
   * because the table is not watched or announcements were lost.
   */
  async isUntouched({ nfproto, table }: WatchedTable, since: number, until: NftMark): Promise<boolean> {
    const watcher = [...this.#watchers].find((one) => one.nfproto === nfproto && one.table === table);
    if (watcher === undefined || !(await this.#isAnnounced(until)) || watcher.since === undefined) return false;
    const { since: knownSince, touchedAt = since } = watcher;
    return distance(since, knownSince) >= 0 && distance(since, touchedAt) >= 0;
  }

  #start(): void {
    const stop = new AbortController();
    this.#stop = stop;
    this.#base = undefined;
    this.#foreign = [];
    this.#lostAfter = undefined;
    const { client, receiveBufferBytes, listen = subscribe } = this.#options;
    listen({
      protocol: NETLINK_NETFILTER,
      groups: [nft.NFNLGRP_NFTABLES],
      onMessage: (reply) => this.#onMessage(reply),
      ownPort: () => client.portId,
      onOverrun: () => {
        this.#lostAfter ??= this.#foreign.length;
      },
      rest: () => {
        if (this.#lostAfter !== undefined) this.#recover(this.#lostAfter);
        return undefined;
      },
      signal: stop.signal,
      ...(receiveBufferBytes === undefined ? {} : { receiveBufferBytes }),
    }).catch((error: unknown) => this.#fail(stop.signal, error));
  }

  #fail({ aborted }: AbortSignal, error: unknown): void {
    if (!aborted) this.#watchers.fail(error);
  }

  /** From now on nothing is missed. */
  #begin(watchers: readonly Watcher[]): void {
    for (const watcher of watchers) watcher.since = undefined;
    this.#look((now) => {
      if (this.#base === undefined) this.#settle(now);
      for (const watcher of watchers) watcher.since = now.generation;
    });
  }

  /** After a loss: either all that is missing were commits of ours, or anything may have changed until now. */
  #recover(lostAfter: number): void {
    const base = this.#base;
    this.#lostAfter = undefined;
    this.#base = undefined;
    this.#look((now) => {
      // Those of others that were announced since may have been announced in part.
      const isHarmless =
        base !== undefined &&
        this.#foreign.length === lostAfter &&
        distance(now.generation, base.generation) === now.commits - base.commits + lostAfter;
      this.#settle(now);
      for (const watcher of isHarmless ? [] : this.#watchers) {
        watcher.since = now.generation;
        touchedIn(watcher).isTotal = true;
        report(watcher, now.generation, undefined);
      }
    });
  }

  #look(onMark: (now: NftMark) => void): void {
    const signal = this.#stop?.signal;
    if (signal === undefined) return;
    this.#options.client
      .generation()
      .then(({ id: generation = 0, commits }) => signal.aborted || onMark({ generation, commits }))
      .catch((error: unknown) => this.#fail(signal, error));
  }

  /** Notes that everything until then is known. */
  #settle(base: NftMark): void {
    this.#base = base;
    this.#foreign = this.#foreign.filter((id) => distance(id, base.generation) > 0);
  }

  #onMessage(reply: Reply): void {
    if (reply.type >> 8 !== NFNL_SUBSYS_NFTABLES || this.#options.client.hasPort(reply.portId)) return;
    if ((reply.type & 0xff) === nft.NFT_MSG_NEWGEN) {
      const { input, start, end } = nfnetlinkPayload(reply);
      const { id = 0, processId: pid, processName: name } = generationCodec.read(input, start, end);
      // What is announced late is in what was read already.
      if (this.#base === undefined || distance(id, this.#base.generation) > 0) this.#foreign.push(id);
      const by = pid === undefined || name === undefined ? undefined : { pid, name };
      for (const watcher of this.#watchers) report(watcher, id, by);
    } else {
      const object = announcedObject(reply);
      for (const watcher of this.#watchers) {
        if (object.family === watcher.nfproto && object.table === watcher.table) note(watcher, object);
      }
    }
  }

  /** Waits a little until what others have committed until then, which did happen, has been announced. */
  async #isAnnounced(until: NftMark): Promise<boolean> {
    for (const endMs = performance.now() + CATCH_UP_MS; ; ) {
      const base = this.#lostAfter === undefined ? this.#base : undefined;
      if (base !== undefined) {
        const commits = distance(until.generation, base.generation);
        if (commits <= 0) return true;
        const announced = this.#foreign.filter((id) => distance(id, until.generation) <= 0).length;
        if (commits <= until.commits - base.commits + announced) break;
      }
      if (performance.now() > endMs) {
        if (base === undefined) return false;
        // It may never be: what is known begins here.
        this.#base = undefined;
        this.#begin([...this.#watchers]);
        return false;
      }
      await new Promise((resolve) => setTimeout(resolve, CATCH_UP_STEP_MS));
    }
    this.#settle(until);
    return true;
  }
}

/** Generations from `b` to `a`; they wrap at 2^32. */
function distance(a: number, b: number): number {
  return (a - b) | 0;
}

function touchedIn(watcher: Watcher): Touched {
  watcher.touched ??= { chains: new Set(), sets: new Set(), defined: new Set(), isTotal: false };
  return watcher.touched;
}

function note(watcher: Watcher, { kind, name, isDefinition }: Announcement): void {
  if (kind === "table") touchedIn(watcher).isTotal = true;
  if ((kind !== "chain" && kind !== "set") || name === undefined) return;
  if (kind === "set" && name.startsWith(ANONYMOUS)) return;
  const { chains, sets, defined } = touchedIn(watcher);
  (kind === "chain" ? chains : sets).add(name);
  if (isDefinition) defined.add(name);
}

/** Passes on what a commit has changed, if anything: others commit to tables of their own all the time. */
function report(watcher: Watcher, generation: number, by: NftForeignChange["by"]): void {
  const { touched } = watcher;
  if (touched === undefined) return;
  watcher.touched = undefined;
  watcher.touchedAt = generation;
  // With the table goes everything in it: too much to name.
  const all = { chains: NOTHING, sets: NOTHING, defined: NOTHING, isTotal: true };
  watcher.onChange({ ...(touched.isTotal ? all : touched), generation, by });
}

/** What the kernel announces of each object that a commit added or deleted. */
interface Announcement {
  readonly family: number;
  readonly table: string | undefined;
  /** A rule counts as a change of its chain, an element as one of its set. */
  readonly kind: "table" | "chain" | "set" | "other";
  /** Of the chain or set. */
  readonly name: string | undefined;
  /** Whether the chain or set itself was made or defined again. */
  readonly isDefinition: boolean;
}

/** NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, …: the same number in all messages. */
const TABLE = 1;
/** Per message: what changes, and the attribute that names it. */
const SUBJECTS: ReadonlyMap<number, readonly [kind: Announcement["kind"], nameAttribute: number]> = new Map([
  [nft.NFT_MSG_NEWTABLE, ["table", TABLE]],
  [nft.NFT_MSG_DELTABLE, ["table", TABLE]],
  [nft.NFT_MSG_NEWCHAIN, ["chain", 3]],
  [nft.NFT_MSG_DELCHAIN, ["chain", 3]],
  [nft.NFT_MSG_NEWRULE, ["chain", 2]],
  [nft.NFT_MSG_DELRULE, ["chain", 2]],
  [nft.NFT_MSG_NEWSET, ["set", 2]],
  [nft.NFT_MSG_DELSET, ["set", 2]],
  [nft.NFT_MSG_NEWSETELEM, ["set", 2]],
  [nft.NFT_MSG_DELSETELEM, ["set", 2]],
]);

/** Reads no more than where the change was. Throws `malformed`. */
function announcedObject(reply: Reply): Announcement {
  const [kind, nameAttribute] = SUBJECTS.get(reply.type & 0xff) ?? (["other", 0] as const);
  const { family, input, start, end } = nfnetlinkPayload(reply);
  let table: string | undefined;
  let name: string | undefined;
  forEachAttribute(input, start, end, (type, from, to) => {
    if (type === TABLE) table = zstring.read(input, from, to);
    else if (type === nameAttribute) name = zstring.read(input, from, to);
  });
  const message = reply.type & 0xff;
  const isDefinition = message === nft.NFT_MSG_NEWCHAIN || message === nft.NFT_MSG_NEWSET;
  return { family, table, kind, name, isDefinition };
}
